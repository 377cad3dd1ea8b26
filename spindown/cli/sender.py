"""What a submit works on: a queue, a part of the bucket, and a scaler that it wakes.

It is found by the tags of the queue, so that who only submits needs no right to read settings
(``spindown iam submitter``).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from spindown.cli.option import LOCAL
from spindown.cli.session import Session, connect, find_place, reach, wake
from spindown.config import WorkloadConfig
from spindown.config.archive import check_code, differs_from
from spindown.config.entrypoint import ModuleUnread
from spindown.contract import tag
from spindown.contract.job.batch import UPLOADS
from spindown.contract.job.message import (
    JobMessage,
    check_requirements,
    encode_job,
    is_id,
    parse_job,
)
from spindown.contract.location import check_declared, work_root
from spindown.contract.name import queue_name, scaler_name
from spindown.contract.settings import WorkloadSettings
from spindown.domain.offer import InstanceRequirements, InstanceType
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import AccessDenied, BadInput, ConfigError, ContractError, NotFound
from spindown.job.route import why_forbidden
from spindown.job.submit import Draft
from spindown.ledger import LedgerView
from spindown.port import JobQueue, ObjectStore
from spindown.reason_text import say

if TYPE_CHECKING:
    from spindown.aws.wiring import Aws


@dataclass(frozen=True, kw_only=True)
class Sender:
    """One workload, as who only sends work to it sees it."""

    aws: "Aws"
    deployment: str
    workload: str
    queue_url: str
    bucket: str
    #: Options with which another command finds the same deployment, each with a space before it.
    options: str
    #: Workload -> what its jobs may read, as the file says; None: no file was given.
    inputs: Mapping[str, Sequence[str]] | None
    #: What the file says of the workload; None: no file was given.
    config: WorkloadConfig | None = None
    #: Of the code that is deployed; "": not known.
    code_version: str = ""
    #: As a session has it.
    check_there: Callable[[], None] = lambda: None

    @property
    def queue(self) -> JobQueue:
        """Return the queue."""
        return self.aws.queue(self.queue_url)

    @property
    def store(self) -> ObjectStore:
        """Return the workload's part of the bucket."""
        return self.aws.object_store(self.bucket, work_root(self.workload))

    def store_of(self, workload: str) -> ObjectStore | None:
        """Return the part of the bucket of a workload, "": this one; None: there is none."""
        if not workload:
            return self.store
        is_known = is_id(workload) and (self.inputs is None or workload in self.inputs)
        return self.aws.object_store(self.bucket, work_root(workload)) if is_known else None

    @property
    def root(self) -> str:
        """Return where that part begins, as ``s3://bucket/.../``."""
        return f"s3://{self.bucket}/{work_root(self.workload)}"

    def check_readable(self, uri: str) -> None:
        """Check that the file lets the workload's jobs read an ``s3://`` address.

        Raises:
            BadInput: it does not, so the job or item would fail on a paid machine.
        """
        declared = (self.inputs or {}).get(self.workload)
        if declared is None:
            return
        try:
            check_declared(uri, [*declared, f"{self.root}{UPLOADS}"])
        except AccessDenied as exc:
            remedy = f"add its prefix to workload.{self.workload}.inputs in the file, and deploy"
            raise BadInput("S3 address", uri, remedy) from exc

    def say_other_code(self, root: Path) -> str:
        """Say that other code is deployed than lies here, or that this cannot run; "": neither."""
        if self.config is None:
            return ""
        try:
            is_other = differs_from(self.code_version, root, self.workload, self.config)
        except (ConfigError, OSError):
            # It is not here; the code that runs is whole.
            return ""
        try:
            check_code(root, {self.workload: self.config})
        except ConfigError as exc:
            fails = "may" if isinstance(exc, ModuleUnread) and LOCAL not in self.options else "will"
            what = "jobs run what was deployed before" if is_other else f"every job {fails} fail"
            return f"the code of {self.workload} here cannot run, so {what}: {exc}"
        if not is_other:
            return ""
        return (
            f"the code of {self.workload} here is not what runs: these jobs run what was deployed; "
            f"bring yours with: {self.deploy_command}"
        )

    @property
    def deploy_command(self) -> str:
        """Return the command that deploys the code that lies here."""
        place = self.options.removesuffix(LOCAL)
        return f"spindown {'deploy' if place == self.options else 'local up'}{place}"

    @cached_property
    def _session(self) -> Session:
        return connect(self.deployment, self.aws.region)

    def read_view(self) -> LedgerView:
        """Read the ledger (raises SpindownError: who only submits may not)."""
        return self._session.ledger(self.workload).read()

    def expect_shape(self, jobs: Sequence[str]) -> str:
        """Return the shape to which jobs of one batch come (as ``Session`` and ``read_view``)."""
        return self._session.expect_shape(self.workload, jobs)

    def read_policy(self) -> tuple[WorkloadSettings, Policy]:
        """Return the workload as deployed, and its policy with the live edit (as ``read_view``)."""
        return self._session.workload(self.workload), self._session.policy(self.workload)

    def nudge(self) -> None:
        """Wake the scaler now. If that fails, it wakes within a minute by itself."""
        wake(self.aws, scaler_name(self.deployment), self.workload)


def check_type(
    draft: Draft,
    policy: Policy,
    workload: InstanceRequirements,
    root_volume_gib: int,
    *,
    sold: Collection[InstanceType] = (),
    options: Mapping[str, str] = MappingProxyType({}),
    shown: Mapping[str, str] = MappingProxyType({}),
    is_local: bool = False,
) -> None:
    """Refuse a type or requirements of which the workload makes dead letters (raises BadInput).

    Args:
        draft: what is sent.
        policy: of the workload.
        workload: what its machines must have.
        root_volume_gib: size of their root volume.
        sold: the types of instances on sale; none: not known.
        options: need -> the option by which the person has asked for it.
        shown: need -> what the person has given there, if not its number.
        is_local: the local market sells them.
    """
    if draft.type is not None and draft.type not in (
        known := sorted(one.name for one in policy.types)
    ):
        names = ", ".join(known)
        remedy = f"name one of {names}" if names else "leave it out: the workload declares no types"
        raise BadInput("type", draft.type, remedy)
    check_needs(draft, options)
    message = JobMessage(items=(), type=draft.type, requirements=draft.requirements)
    job = parse_job(encode_job(message))
    rejected = why_forbidden(job, policy, workload, root_volume_gib, sold=sold)
    if rejected:
        asked, need = draft.requirements or {}, str(rejected.about.get("field", ""))
        if rejected.code is ReasonCode.NO_TYPES:
            need = next(iter(asked), "")
        is_option = need in asked and need in options
        remedy = _say_rejected(rejected, draft.workload, is_option=is_option, is_local=is_local)
        if is_option:
            raise BadInput(options[need], shown.get(need, asked[need]), remedy)
        field = "requirements" if draft.type is None else "--type"
        raise BadInput(field, draft.type or asked, remedy)


def check_needs(draft: Draft, options: Mapping[str, str] = MappingProxyType({})) -> None:
    """Refuse requirements that no message has, whatever the policy (BadInput; as above)."""
    try:
        check_requirements(draft.requirements)
    except ContractError as exc:
        # Here, since what cannot be written as JSON reaches no message.
        name = exc.field.removeprefix("message.")
        named = options.get(name.removeprefix("requirements."), name)
        raise BadInput(named, exc.value, exc.remedy) from exc


def _say_rejected(rejected: Reason, workload: str, *, is_option: bool, is_local: bool) -> str:
    """Return why a job would be forbidden, and what to do; ``is_option``: one asks for it."""
    if rejected.code is ReasonCode.NO_TYPES:
        table = f"[[workload.{workload}.policy.types]]"
        return f"leave it out, or add {table} to spindown.toml and deploy: {workload} has no types"
    # Who has given an option is told its name and value before.
    said = say(replace(rejected, about={**rejected.about, "is_told": is_option}))
    if is_local and rejected.code is ReasonCode.NO_SUCH_SIZE:
        said += "; this is the local market, and `spindown docs local` lists what it sells"
    return said


def open_sender(workload: str, config: Path, *, deployment: str | None, local: bool) -> Sender:
    """Find a workload, by file or by the name of its deployment.

    Raises:
        BadInput: no region, no credentials, or no such deployment or workload.
    """
    place = find_place(config, deployment=deployment, local=local)
    if place.inputs is not None and workload not in place.inputs:
        known = ", ".join(place.inputs)
        raise BadInput("workload", workload, f"name one of the deployment's: {known}")
    aws = reach(place.region)
    try:
        url, tags = aws.find_queue(queue_name(place.deployment, workload))
        bucket = tags[tag.BUCKET]
    except (KeyError, NotFound) as exc:
        remedy = f"deploy {place.deployment} to {aws.region} first, or name one that it has"
        raise BadInput("workload", workload, remedy) from exc
    return Sender(
        aws=aws,
        deployment=place.deployment,
        workload=workload,
        queue_url=url,
        bucket=bucket,
        options=place.options,
        inputs=place.inputs,
        config=(place.workloads or {}).get(workload),
        code_version=tags.get(tag.CODE_VERSION, ""),
        check_there=place.check_there,
    )
