"""``spindown run``: send a folder with a command, follow it, fetch what it leaves."""

import json
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom
from typing import Annotated, Any

import typer

from spindown.cli import option
from spindown.cli.cancel import describe
from spindown.cli.logs import Screen, show_jobs
from spindown.cli.render.line import print_aside
from spindown.cli.sender import check_type
from spindown.cli.session import Session, open_session
from spindown.cli.wait import INTERRUPTED, sending
from spindown.contract.codec import decode
from spindown.contract.decision import Decision, LaunchRequestRecord
from spindown.contract.job.manifest import JobState
from spindown.contract.row import DECISION, DecisionRow, control_partition
from spindown.control.market import load_catalogue, types_on_sale
from spindown.control.policy_edit import current_policy
from spindown.domain.offer import Catalogue, InstanceRequirements
from spindown.domain.policy import Policy
from spindown.domain.reason import ReasonCode
from spindown.error import BadInput, SpindownError
from spindown.job.cancel import cancel
from spindown.job.result import JobProgress, read_progress, read_records
from spindown.job.submit import Draft, name_batch, submit_items
from spindown.operate.batch_status import expect_shape, shapes_of
from spindown.operate.download import fetch_outputs
from spindown.operate.sent_folder import OUTPUTS, exit_status, pack_folder, send_folder
from spindown.operate.why import read_decisions
from spindown.port import ControlPorts, Key, WorkPorts
from spindown.reason_text import say_asked_pools, say_count, say_outcome, say_shape_outcome

_MIB_PER_GIB = 1024
#: Told at once, at most.
_DECISIONS = 10
#: Characters of the command by which people tell a run from others.
_COMMAND_SHOWN = 40


def run(  # noqa: PLR0913 - each is an option of the command line
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What is run in the folder.")
    ],
    *,
    folder: Annotated[Path, typer.Option(help="What is sent; hidden files are not.")] = Path(),
    output: Annotated[
        Path | None,
        typer.Option(
            help="Where what it leaves in outputs/ is fetched to; default: FOLDER/outputs/RUN."
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Send it, and do not wait.")] = False,
    workload: option.OfWorkload = None,
    type_name: Annotated[
        str | None, typer.Option("--type", help="Type of the job, as the workload declares it.")
    ] = None,
    cpu: Annotated[int | None, typer.Option(min=1, help="vCPUs that it needs.")] = None,
    memory: Annotated[
        float | None, typer.Option(min=0.1, max=100_000, help="GiB that it needs.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=0, help="GPUs that it needs.")] = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="GPUs with at least the memory of this one, as L4."),
    ] = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Run a command in a copy of a folder on a machine. Exit with its status, or 1.

    Without --gpu, --gpus and --type it gets a machine without a GPU, where the workload has such.
    """
    session = open_session(config, deployment=deployment, local=local)
    owner = _find_workload(session, workload)
    asked: dict[str, float | None] = {"vcpus": cpu, "memory_gib": memory, "gpus": gpus}
    options = {"vcpus": "--cpu", "memory_gib": "--memory", "gpus": "--gpus"}
    if gpu is not None:
        asked |= needs_by_gpu(gpu, gpus, load_catalogue(session.store))
        options |= {"gpu_memory_gib": "--gpu"} | ({} if gpus else {"gpus": "--gpu"})
    with session.told_if_slow():
        draft = draft_run(
            Draft(
                workload=owner,
                batch_id=name_batch(datetime.now(UTC), SystemRandom()),
                type=type_name,
                requirements={name: value for name, value in asked.items() if value is not None},
                command=shlex.join(command)[:_COMMAND_SHOWN],
            ),
            session.control_ports(),
            options=options,
            shown={"gpu_memory_gib": f"{gpu} ({asked['gpu_memory_gib']} GiB)"} if gpu else {},
            is_local=session.is_local,
        )
        needs = draft.requirements
        expected = expect_shape(type_name or "", needs, session.outlook(owner))
        launches = Launches(session, owner, expected)
    launches.job_id = job_id = _send(session, draft, folder, command)
    print_aside(f"run {job_id}; see it with: spindown logs {job_id} --follow{session.options}")
    if session.is_local and (needs or type_name is not None):
        print_aside("a size chooses a machine; the local system does not bound what a job uses")
    if detach:
        print(json.dumps({"job_id": job_id}) if as_json else job_id)
        return
    try:
        ends = show_jobs(
            session,
            owner,
            [job_id],
            Screen(as_json=as_json),
            follow=True,
            meanwhile=launches.tell,
        )
        end: JobProgress | None = ends[job_id]
    except KeyboardInterrupt:
        end = _leave(session, owner, job_id)
    if end is None:
        raise typer.Exit(INTERRUPTED)
    place = output or folder / OUTPUTS / draft.batch_id
    # A folder that a person names may have settings there already, which programs obey.
    raise typer.Exit(_end(session, owner, end, place, may_hide=output is None))


def _find_workload(session: Session, named: str | None) -> str:
    names = [named] if named else session.deployment.workloads
    found = [name for name in names if session.workload(name).run.folders]
    if not found:
        remedy = "add a workload with `run = { folders = true }` and no code of its own, and deploy"
        raise BadInput("workload", named or ", ".join(names), remedy)
    if len(found) > 1:
        raise BadInput("workload", ", ".join(found), "say with --workload which one runs it")
    return found[0]


def _send(session: Session, draft: Draft, folder: Path, command: Sequence[str]) -> str:
    packed = pack_folder(folder, command)
    address = send_folder(packed, draft.workload, session.bucket, session.store)
    left_out = f", {len(packed.left_out)} left out" if packed.left_out else ""
    print_aside(f"sent {say_count(packed.files, 'file')}{left_out}, {len(packed.archive):,} bytes")
    queue, store = session.queue(draft.workload), session.work_store(draft.workload)
    with sending() as state:
        state.options = session.options
        batch = submit_items([address], draft, queue=queue, store=store, begun=state.note)
        session.nudge(draft.workload)
    return batch.jobs[0]


def draft_run(
    asked: Draft,
    ports: ControlPorts,
    *,
    options: Mapping[str, str],
    shown: Mapping[str, str],
    is_local: bool,
) -> Draft:
    """Return a run as it is sent, judged by the policy in force (raises BadInput: it is forbidden).

    Args:
        asked: with the needs that the person has stated.
        ports: of the control plane.
        options: need -> the option by which the person has asked for it.
        shown: need -> what the person has given there, if not its number.
        is_local: the local market sells machines.
    """
    settings, policy = current_policy(asked.workload, ports)
    needs = dict(asked.requirements or {})
    if asked.type is None:
        needs = without_gpu(needs, policy, settings.requirements)
    draft = replace(asked, requirements=needs or None)
    check_type(
        draft,
        policy,
        settings.requirements,
        settings.run.root_volume_gib,
        sold=types_on_sale(settings, ports, ports.clock.now()),
        options=options,
        shown=shown,
        is_local=is_local,
    )
    return draft


def without_gpu(
    needs: Mapping[str, float], policy: Policy, workload: InstanceRequirements
) -> dict[str, float]:
    """Return needs for which no machine with a GPU is bought, if they ask for none.

    That are needs with vCPUs (``domain.shape.requirements_of``). Unchanged where the workload
    has no machines without a GPU, or its policy allows no message to ask for vCPUs.
    """
    is_said = any(needs.get(name) for name in ("vcpus", "gpus", "gpu_memory_gib"))
    may_ask = bool(policy.types) and (policy.requirements_at_most.vcpus or 0) >= 1
    if is_said or not may_ask or not workload.allows_no_gpu:
        return dict(needs)
    return {**needs, "vcpus": 1}


def needs_by_gpu(name: str, count: int | None, catalogue: Catalogue | None) -> dict[str, float]:
    """Return the needs of who names a GPU, and how many of it (raises BadInput: that is none)."""
    if count == 0:
        raise BadInput("--gpus", 0, "ask for one at least, or leave out --gpu")
    return {"gpus": count or 1, "gpu_memory_gib": least_gpu_memory(name, catalogue)}


def least_gpu_memory(name: str, catalogue: Catalogue | None) -> int:
    """Return the GiB of a GPU, rounded down as sizes of shapes are; the least of several kinds.

    Args:
        name: as EC2 writes it, in capitals or not.
        catalogue: what is sold; None: nobody has read that yet.

    Raises:
        BadInput: no machine on sale has whole GPUs of that name.
    """
    if catalogue is None:
        raise BadInput("--gpu", name, "wait until the hourly function has read what EC2 sells")
    sold = [one for one in catalogue.instance_types.values() if one.gpu_count >= 1.0]
    found = [one.gpu_memory_mib for one in sold if one.gpu_name.lower() == name.lower()]
    if not found:
        known = ", ".join(sorted({one.gpu_name for one in sold}))
        raise BadInput("--gpu", name, f"name one of {known}")
    return min(found) // _MIB_PER_GIB


class Launches:
    """Tells which machines are tried for a run, and what EC2 says, decision by decision.

    Of a workload with types that is what is decided for the shape of the run.
    """

    def __init__(self, session: Session, workload: str, expected: str) -> None:
        """Begin with the decisions from now on.

        ``expected`` is the shape to which the run comes; "": the workload declares no types.
        """
        self._session = session
        self._workload = workload
        self._expected = expected
        self._last = ""
        self.job_id = ""
        #: Key of the last decision that was told, or was there before; keys sort by time.
        self._shown = self._newest()

    def tell(self) -> None:
        """Print what was decided since the last look; without an answer of AWS that is nothing."""
        with suppress(SpindownError):
            if self._newest() <= self._shown:
                return
            now, store = self._session.aws.clock.now(), self._session.store
            found, _ = read_decisions(self._workload, store, last=_DECISIONS, today=now)
            view = self._session.ledger(self._workload).read()
            shapes = shapes_of({self.job_id}, view, self._expected)
            for decision in reversed(found):
                if decision.key > self._shown:
                    for line in say_tried(decision, shapes):
                        if line != self._last:
                            print_aside(line)
                        self._last = line
            self._shown = max([self._shown, *(decision.key for decision in found)])

    def _newest(self) -> str:
        """Return the key of the last decision; "": there is none."""
        row = self._session.table.get(Key(control_partition(self._workload), DECISION))
        return "" if row is None else decode(DecisionRow, row).key


def say_tried(decision: Decision, shapes: Collection[str]) -> Iterator[str]:
    """Yield what was tried for some shapes, ``{""}`` of a workload without types, or why not."""
    own = tuple(request for request in decision.requests if request.shape in shapes)
    asked = say_asked_pools(replace(decision, requests=own))
    told = {pool for request in own for pool in request.pools if _is_news(request, pool)}
    yield from (f"{pool} {words}" for pool, words in asked.items() if pool in told)
    # Of this run nothing waits only when it is at work or over, which its output tells.
    if own:
        return
    if "" not in shapes:
        waiting = (each for each in decision.shapes if each.shape in shapes and each.visible)
        yield from map(say_shape_outcome, waiting)
    elif decision.summary.sizing.code is not ReasonCode.NOTHING_WAITS:
        yield say_outcome(decision.outcome, decision.summary)


def _is_news(request: LaunchRequestRecord, pool: str) -> bool:
    """Tell whether EC2 took a pool or refused it, or no machine came of the whole request."""
    of_pools = {*request.instances.values(), *(refusal.pool for refusal in request.refusals)}
    return not request.instances or pool in of_pools


def _leave(session: Session, workload: str, job_id: str) -> JobProgress | None:
    """Ask what becomes of a job whose run was interrupted; nobody there to ask: it goes on.

    Return how it ended, if it had completed before it could be cancelled.
    """
    answer = ""
    if sys.stdin.isatty():
        try:
            answer = input("\nspindown: detach (the job goes on) or cancel? [d/c] ")
        except (EOFError, KeyboardInterrupt):
            answer = ""
    if answer.strip().lower().startswith("c"):
        return cancel_run(workload, job_id, session.work_ports(workload))
    print_aside(f"{job_id} goes on: spindown logs {job_id} --follow{session.options}")
    return None


def cancel_run(workload: str, job_id: str, ports: WorkPorts) -> JobProgress | None:
    """Cancel a run and tell what came of that; return how it ended, if it had completed before."""
    for one in cancel(workload, [job_id], ports):
        print_aside(describe(one))
    end = read_progress(job_id, ports.objects)
    return end if end.state is JobState.COMPLETED else None


def _end(session: Session, workload: str, end: JobProgress, place: Path, *, may_hide: bool) -> int:
    """Fetch what a run has left; return the exit status."""
    store = session.work_store(workload)
    if end.state is not JobState.COMPLETED:
        print_aside(f"{end.job_id} {end.state}: {end.reason}")
        return 1
    status = 1
    records = ((record, place) for record in read_records(end.job_id, store))
    for record, fetched in fetch_outputs(records, store, may_hide=may_hide):
        status = status_of(record)
        for fault in (one for one in fetched if isinstance(one, BadInput)):
            print_aside(str(fault))
            status = status or 1
        if count := sum(isinstance(one, Path) for one in fetched):
            print_aside(f"{say_count(count, 'file')} in {place}")
    return status


def status_of(record: Mapping[str, Any]) -> int:
    """Return the exit status of a run by the record of its command; print its error."""
    status = exit_status(record)
    # A process ends with the last eight bits, and a worker may tell any number.
    if status is None or (status and status % 256 == 0):
        status = 1
    if (error := record.get("error")) is not None:
        print_aside(str(error))
        return status or 1
    return status
