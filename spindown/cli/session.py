"""What a command works on: one deployment, found by file or name, and its ports."""

import io
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from spindown import config as configuration
from spindown.aws.clock import pause
from spindown.cli.option import CONFIG_FILE, LOCAL
from spindown.cli.render.line import Tell, print_aside, told_if_slow
from spindown.contract.location import work_root
from spindown.contract.queue import queue_of_shape
from spindown.contract.row import PolicyRow
from spindown.contract.settings import DeploymentSettings, WorkloadSettings
from spindown.control.policy_edit import effective_policy
from spindown.domain.policy import Policy
from spindown.domain.shape import declared_shapes
from spindown.error import BadInput, NoCredentials, NotFound, SpindownError
from spindown.job.epoch import read_requeued
from spindown.job.lost_message import count_lost
from spindown.job.result import JobProgress, find_jobs
from spindown.job.shape_queue import backlogs, read_shapes
from spindown.job.source_search import is_address
from spindown.ledger import Ledger
from spindown.operate.batch_status import Outlook, expect_shape_of, read_outlook
from spindown.operate.status import Status, read_status, with_next_try
from spindown.port import (
    ControlPorts,
    JobQueue,
    LiveEdit,
    LogSource,
    ObjectStore,
    SettingsStore,
    Table,
    WorkPorts,
)

# boto3, and with it our ports on AWS, is loaded once AWS is to be asked: it takes a fifth of a
# second. What runs the local system is loaded where one is meant.
if TYPE_CHECKING:
    import boto3

    from spindown.aws.wiring import Aws
    from spindown.local.status import SystemStatus


def _no_check() -> None:
    """Of AWS nobody knows that no answer will come any more."""


@dataclass(frozen=True)
class Session:
    """One deployment and the ports to it, each built when it is first used."""

    aws: "Aws"
    deployment: DeploymentSettings
    #: Options with which another command finds the same deployment, each with a space before it.
    options: str = ""
    #: Raises SpindownError once it is known that no answer will come any more.
    check_there: Callable[[], None] = _no_check
    _workloads: dict[str, WorkloadSettings] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Tell whether it is the local system's."""
        return self.options.endswith(LOCAL)

    def told_if_slow(self) -> AbstractContextManager[Tell]:
        """Say who is being asked, until there is an answer (``render.line.noted_if_slow``)."""
        return told_if_slow(local=self.is_local)

    @property
    def bucket(self) -> str:
        """Return the name of the deployment's bucket."""
        return self.deployment.bucket

    @cached_property
    def settings(self) -> SettingsStore:
        """Return the store of live policy edits."""
        return self.aws.settings(self.deployment.name)

    @cached_property
    def store(self) -> ObjectStore:
        """Return the deployment's bucket."""
        return self.aws.object_store(self.deployment.bucket)

    def work_uri(self, workload: str) -> str:
        """Return where the workload's part of the bucket begins, as ``s3://bucket/.../``."""
        return f"s3://{self.deployment.bucket}/{work_root(workload)}"

    def work_store(self, workload: str) -> ObjectStore:
        """Return a workload's part of the bucket: its jobs, batches and uploads."""
        return self.aws.object_store(self.deployment.bucket, work_root(workload))

    @cached_property
    def table(self) -> Table:
        """Return the deployment's ledger table."""
        return self.aws.table(self.deployment.table)

    def ledger(self, workload: str) -> Ledger:
        """Return the ledger of a workload."""
        return Ledger(self.table, workload)

    def workload(self, name: str) -> WorkloadSettings:
        """Return a workload as deployed.

        Raises:
            BadInput: the deployment has none of this name.
        """
        if name not in self.deployment.workloads:
            known = ", ".join(self.deployment.workloads)
            raise BadInput("workload", name, f"name one of the deployment's: {known}")
        if name not in self._workloads:
            self._workloads[name] = self.settings.workload(name)[0]
        return self._workloads[name]

    def edit(self, workload: str) -> LiveEdit | None:
        """Return the live edit of a workload's policy as stored now, valid or not."""
        return self.settings.workload(workload)[1]

    def policy(self, workload: str) -> Policy:
        """Return the policy of a workload, with its live edit as stored now, if that is valid."""
        settings = self.workload(workload)
        return effective_policy(settings, self.edit(workload), PolicyRow()).policy

    def log_source(self, workload: str) -> LogSource:
        """Return the log of a workload's workers."""
        return self.aws.log_source(self.workload(workload).log_group)

    def queue(self, workload: str) -> JobQueue:
        """Return the queue of a workload."""
        return self.aws.queue(self.workload(workload).queue_url)

    def queues(self, workload: str) -> dict[str, JobQueue]:
        """Return the queues in which a workload's messages wait, by shape; "": the entry queue."""
        settings = self.workload(workload)
        shapes = read_shapes(self.table, workload) if settings.policy.types else ()
        own = settings.queue_url
        return {name: self.aws.queue(queue_of_shape(own, name)) for name in ("", *shapes)}

    def status(self, workload: str) -> Status:
        """Gather the status of a workload."""
        settings = self.workload(workload)
        effective = effective_policy(settings, self.edit(workload), PolicyRow())
        found = read_status(
            workload,
            ledger=self.ledger(workload),
            queues=self.queues(workload),
            dead_letters=self.aws.queue(settings.dlq_url),
            budget_usd=self.deployment.budget_per_month,
            refusal=effective.refusal,
            now=self.aws.clock.now(),
            declared=declared_shapes(effective.policy),
        )
        return replace(
            found,
            is_drained=effective.policy.max_workers == 0,
            deployed_workers=settings.policy.max_workers,
        )

    def outlook(self, workload: str) -> Outlook:
        """Gather what an ETA of the workload's batches goes by."""
        settings, view = self.workload(workload), self.ledger(workload).read()
        queues = self.queues(workload)
        return read_outlook(
            settings,
            effective_policy(settings, self.edit(workload), view.policy).policy,
            view,
            dict(zip(queues, backlogs(queues.values()), strict=True)),
            self.control_ports(),
        )

    def expect_shape(self, workload: str, jobs: Sequence[str]) -> str:
        """Return the shape to which jobs of one batch come; "": its workload declares no types."""
        if not self.policy(workload).types:
            return ""
        return expect_shape_of(jobs, self.work_store(workload), self.outlook(workload))

    def control_ports(self) -> ControlPorts:
        """Return the ports of the control plane."""
        return ControlPorts(
            name=self.deployment.name,
            clock=self.aws.clock,
            random=Random(),
            table=self.table,
            objects=self.store,
            settings=self.settings,
            compute=self.aws.compute(),
            market=self.aws.market(),
            metrics=self.aws.printed_metrics(io.StringIO()),
            queue=self.aws.queue,
        )

    def work_ports(self, workload: str) -> WorkPorts:
        """Return the ports for work on jobs; the command line reads no declared inputs."""
        settings = self.workload(workload)
        return WorkPorts(
            clock=self.aws.clock,
            random=SystemRandom(),
            pause=pause,
            queue=self.aws.queue(settings.queue_url),
            shapes={name: one for name, one in self.queues(workload).items() if name},
            dead_letters=self.aws.queue(settings.dlq_url),
            objects=self.work_store(workload),
            inputs=self.aws.input_source([]),
            table=self.table,
            metrics=self.aws.printed_metrics(io.StringIO()),
        )

    def count_lost(self, workload: str, *, reads_at_most: int, batch: str | None = None) -> int:
        """Return how many jobs have no message, at least (``job.lost_message``)."""
        settings = self.workload(workload)
        return count_lost(
            workload,
            objects=self.work_store(workload),
            queues=[*self.queues(workload).values(), self.aws.queue(settings.dlq_url)],
            table=self.table,
            now=self.aws.clock.now(),
            reads_at_most=reads_at_most,
            batch=batch,
        )

    def with_next_try(self, workload: str, job: JobProgress) -> JobProgress:
        """Return a job with its next try; who may not read the ledger is told of none."""

        def find(job_id: str) -> datetime | None:
            with suppress(SpindownError):
                row = read_requeued(workload, job_id, self.table)
                if row and row.next_try_at and row.next_try_at > self.aws.clock.now():
                    return row.next_try_at
            return None

        return with_next_try(job, find)

    def nudge(self, workload: str) -> None:
        """Wake the scaler now. If that fails, it wakes within a minute by itself."""
        wake(self.aws, self.deployment.scaler, workload)


def wake(aws: "Aws", scaler: str, workload: str) -> None:
    """Wake a scaler for a workload. If that fails, it wakes within a minute by itself."""
    try:
        aws.waker(scaler).wake(workload)
    except SpindownError as exc:
        print_aside(f"the scaler will notice at its next tick ({exc})")


@dataclass(frozen=True, slots=True)
class DeploymentPlace:
    """Where a deployment is, as the options of a command name it."""

    deployment: str
    #: None: as the AWS configuration says.
    region: str | None
    #: Options with which another command finds the same deployment, each with a space before it.
    options: str
    #: Workload -> what its jobs may read, as the file says; None: no file was given.
    inputs: Mapping[str, Sequence[str]] | None
    #: What the file says of workloads; None: no file was given.
    workloads: Mapping[str, configuration.WorkloadConfig] | None = None
    #: As a session has it.
    check_there: Callable[[], None] = _no_check


def find_place(
    config: Path, *, deployment: str | None, local: bool, named: str = "--config"
) -> DeploymentPlace:
    """Return where a deployment is, by file or by name, and point this process there.

    Raises:
        BadInput: there is no such file, or the local system does not run it.
    """
    region, inputs, workloads, check_there = None, None, None, _no_check
    options = f" --deployment {deployment}" if deployment is not None else ""
    if deployment is None:
        loaded = configuration.load(config, named=named)
        deployment, region = loaded.deployment.name, loaded.deployment.region
        workloads = loaded.workload
        inputs = {name: workload.inputs for name, workload in workloads.items()}
        options = f" --config {shlex.quote(str(config))}" if config != CONFIG_FILE else ""
    if local:
        here, check_there = point_at_local_system(config)
        if here != deployment:
            remedy = f"the local system here runs {here}: name that, or start one for this file"
            raise BadInput("deployment", deployment, remedy)
        options += LOCAL
    return DeploymentPlace(deployment, region, options, inputs, workloads, check_there)


def open_session(
    config: Path, *, deployment: str | None, local: bool, named: str = "--config"
) -> Session:
    """Connect to a deployment, by file or by name; ``named`` is the option that gave the file.

    Raises:
        BadInput: no region, no credentials, or no such deployment.
    """
    place = find_place(config, deployment=deployment, local=local, named=named)
    with told_if_slow(local=local):
        found = connect(place.deployment, place.region)
    return replace(found, options=place.options, check_there=place.check_there)


def connect(deployment: str, region: str | None) -> Session:
    """Connect to a deployment by the standard AWS configuration of this process."""
    aws = reach(region)
    try:
        return Session(aws=aws, deployment=aws.settings(deployment).deployment())
    except NotFound as exc:
        remedy = f"deploy it to {aws.region} first, or name another"
        raise BadInput("deployment", deployment, remedy) from exc


def reach(region: str | None) -> "Aws":
    """Return AWS by the standard configuration of this process, in its own region if None.

    Raises:
        BadInput: no region, no credentials, or an AWS configuration that cannot be read.
    """
    from spindown.aws.wiring import Aws  # noqa: PLC0415 - slow

    with _configuration_read():
        session = _configure(region)
        has_credentials = session.get_credentials() is not None
    if session.region_name is None:
        raise BadInput("region", None, "set AWS_REGION, or name it in spindown.toml")
    if not has_credentials:
        raise NoCredentials("credentials", None, "log in to AWS, or use --local")
    return Aws(session)


def configured_region() -> tuple[str, str] | None:
    """Return the region by the standard configuration of this process, and what names it.

    None: nothing does.

    Raises:
        BadInput: an AWS configuration that cannot be read.
    """
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if found := os.environ.get(name):
            return found, name
    with _configuration_read():
        of_profile = _configure(None).region_name
    return (of_profile, "region of the AWS profile") if of_profile else None


def _configure(region: str | None) -> "boto3.Session":
    import boto3  # noqa: PLC0415 - slow

    # The aws command line reads AWS_REGION too; boto3 reads only AWS_DEFAULT_REGION.
    return boto3.Session(region_name=region or os.environ.get("AWS_REGION") or None)


@contextmanager
def _configuration_read() -> Iterator[None]:
    import botocore.exceptions  # noqa: PLC0415 - slow

    try:
        yield
    except botocore.exceptions.BotoCoreError as exc:
        profile = os.environ.get("AWS_PROFILE", "default")
        remedy = f"fix it, or name another (AWS_PROFILE): {exc}"
        raise BadInput("AWS profile", profile, remedy) from exc


def reach_local_system(deployment: str, config: Path) -> Session:
    """Connect to the local system of this directory, and leave this process as it is.

    Raises:
        BadInput: none runs here or beside the file, or it runs another deployment.
    """
    from spindown.local import daemon  # noqa: PLC0415 - slow

    state, status = _find_local_system(config)
    if status.deployment != deployment:
        remedy = f"the local system here runs {status.deployment}: name that"
        raise BadInput("deployment", deployment, remedy)
    aws = local_aws(state, status)
    return Session(
        aws=aws,
        deployment=aws.settings(deployment).deployment(),
        check_there=partial(daemon.check_there, state.resolve(), status.pid),
    )


def local_aws(state: Path, status: "SystemStatus") -> "Aws":
    """Return the ports to a local system; this process is left as it is."""
    import boto3  # noqa: PLC0415 - slow
    from botocore.session import Session as CoreSession  # noqa: PLC0415 - likewise

    from spindown.aws.wiring import Aws  # noqa: PLC0415 - likewise
    from spindown.local import daemon, environment  # noqa: PLC0415 - likewise

    core = CoreSession()
    core.set_config_variable("config_file", str(daemon.profile(state)))
    core.set_config_variable("profile", environment.PROFILE)
    return Aws(boto3.Session(botocore_session=core, region_name=status.region))


def has_credentials() -> bool:
    """Tell whether the AWS configuration of this process has credentials.

    Raises:
        BadInput: an AWS configuration that cannot be read.
        Unreachable: a login that is over, or cannot be renewed.
    """
    from spindown.aws.error import translated  # noqa: PLC0415 - slow

    with _configuration_read():
        found = _configure(None).get_credentials()
    if found is not None:
        with translated():
            found.get_frozen_credentials()
    return found is not None


def point_at_local_system(config: Path = CONFIG_FILE) -> tuple[str, Callable[[], None]]:
    """Point this process at the local system of its directory, and at nothing else of AWS.

    Returns the name of the deployment that it runs, and what raises SpindownError once the system
    has ended.

    Raises:
        BadInput: none runs here or beside the file.
    """
    from spindown.local import daemon, environment  # noqa: PLC0415 - slow

    state, status = _find_local_system(config)
    for name in os.environ.keys() - environment.outer_environment().keys():
        del os.environ[name]
    os.environ.update(environment.aws_environment(status.endpoint, status.region))
    return status.deployment, partial(daemon.check_there, state.resolve(), status.pid)


def _find_local_system(config: Path) -> "tuple[Path, SystemStatus]":
    """Return the state of the system that runs here, or else beside the file, and its status."""
    from spindown.local import STATE, daemon  # noqa: PLC0415 - slow

    for state in (STATE, config.parent / STATE):
        if (status := daemon.status(state)) is not None:
            return state, status
    remedy = (
        "no local system runs in this folder: run this where `spindown local up` was run, name the "
        "file there with --config, or start one here first"
    )
    raise BadInput("--local", str(Path.cwd()), remedy)


def is_local() -> bool:
    """Tell whether this process talks to a local system, of whatever directory."""
    import boto3  # noqa: PLC0415 - slow

    from spindown.aws.error import translated  # noqa: PLC0415 - likewise
    from spindown.local.environment import ACCESS_KEY  # noqa: PLC0415 - likewise

    credentials = boto3.Session().get_credentials()
    # A login that is over is none of the local system's.
    with suppress(SpindownError), translated():
        return credentials is not None and credentials.access_key == ACCESS_KEY
    return False


#: The form of the ids that SQS gives to messages.
_MESSAGE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

#: An id of an instance (Amazon EC2 User Guide, "Resource IDs").
INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,17}")


def find_workload(
    session: Session,
    name: str,
    *,
    workload: str | None,
    argument: str,
    wanted: str = "",
) -> tuple[str, tuple[str, ...]]:
    """Return the workload that has a batch or a job of this name, and the jobs meant.

    Ids are unique within one workload only.

    Args:
        session: the deployment.
        name: the batch or the job.
        workload: look only there; None: look everywhere.
        argument: the argument that gave the name, for the error.
        wanted: what else may be named, for the error.

    Raises:
        BadInput: no workload or several have it, or there is no such workload.
    """
    if workload is not None:
        session.workload(workload)
    found = []
    with session.told_if_slow():
        for each in session.deployment.workloads if workload is None else (workload,):
            with suppress(NotFound):
                found.append((each, find_jobs(name, session.work_store(each))))
    if not found and "INSTANCE" not in argument and INSTANCE_ID.fullmatch(name):
        raise BadInput(argument, name, f"`spindown logs {name}` shows what runs on an instance")
    if not found:
        lists = "`spindown batches` lists them"
        if is_address(name):
            lists = "`spindown batches --sources` lists the objects whose jobs workers claimed"
        elif _MESSAGE.fullmatch(name):
            owner = workload or "WORKLOAD"
            lists += f", `spindown redrive {owner} --list` the messages that became dead letters"
        remedy = f"name a batch or a job that was submitted{wanted}: {lists}"
        raise BadInput(argument, name, remedy)
    if len(found) > 1:
        owners = ", ".join(each for each, _ in found)
        raise BadInput(argument, name, f"say with --workload which one is meant: {owners}")
    return found[0]
