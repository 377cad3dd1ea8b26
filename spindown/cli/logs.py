"""``spindown logs``: what the code of jobs prints, once or as it is printed."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from itertools import chain, islice
from threading import Event
from typing import Annotated, Any

import typer

from spindown.cli import option
from spindown.cli.render.line import Tell, clear_note, noted_if_slow, print_aside
from spindown.cli.session import INSTANCE_ID, Session, find_workload, open_session
from spindown.cli.wait import (
    end_to_json,
    going_on,
    has_failed,
    say_awaited,
    say_ends,
    say_failures,
)
from spindown.contract.codec import encode
from spindown.contract.log import (
    ATTEMPT_FAILED,
    JOB_USED,
    USER_OUTPUT,
    USER_OUTPUT_LEFT_OUT,
    USER_OUTPUT_LIMIT,
    USER_PROGRESS,
    followed_ids,
)
from spindown.domain.fleet import Worker
from spindown.error import BadInput, NotFound, SpindownError, printable
from spindown.job.result import JobProgress, read_progress
from spindown.operate.log import (
    JobEnds,
    KeptLog,
    LiveLog,
    LogFollower,
    LogLine,
    begin_live,
    live_of_instance,
    live_of_jobs,
    read_kept,
)

#: From one look to the next, what it takes included, seconds.
LOOK_SECONDS = 1.0
#: Lines that are read before they are shown by attempt.
_GATHERED_AT_ONCE = 1000
#: Looks at the log to one at what is waited for.
_LOOKS_A_NOTE = 3
#: Jobs of which is said when they are tried again.
_FAILING_SHOWN = 5


def logs(
    name: Annotated[str, typer.Argument(metavar="JOB|BATCH|INSTANCE", help="Whose output.")],
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job ends.")
    ] = False,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="Times, in UTC; kept 30 days.")
    ] = False,
    workload: option.OfWorkload = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Print what jobs print; with --follow as they do. Exit 1 if a job or an item failed."""
    session = open_session(config, deployment=deployment, local=local)
    screen = Screen(as_json=as_json, timestamps=timestamps)
    try:
        argument = "BATCH, JOB or INSTANCE"
        owner, jobs = find_workload(session, name, workload=workload, argument=argument)
    except BadInput:
        owner = _owner_of(session, name)
        if not owner:
            raise
        _show_instance(session, owner, name, screen, follow=follow)
        return
    with going_on(name, session.options):
        ends = show_jobs(session, owner, jobs, screen, follow=follow)
    if not has_failed(ends):
        return
    if any(end.items_failed for end in ends.values()) and not as_json:
        print_aside(f"what failed, and why: spindown results {name} --failed{session.options}")
    raise typer.Exit(1)


def show_jobs(
    session: Session,
    workload: str,
    jobs: Sequence[str],
    screen: "Screen",
    *,
    follow: bool,
    meanwhile: Callable[[], None] = lambda: None,
) -> Mapping[str, JobProgress]:
    """Show the output of jobs; return how they ended, or how far they are.

    ``meanwhile`` is called before each look.
    """
    store = session.work_store(workload)
    kept: set[tuple[str, int]] = set()
    source, now = session.log_source(workload), session.aws.clock.now()
    # What is kept of an attempt has no times.
    live = live_of_jobs(source, jobs, now) if screen.timestamps else None
    with noted_if_slow("reading what is printed ...") as note:
        for job_id in () if screen.timestamps else jobs:
            for log in read_kept(job_id, store):
                if log.text is not None:
                    kept.add((log.job_id, log.attempt))
                screen.show_kept(log)
        live = live or begin_live(source, jobs, store, kept, now)
        if not follow:
            screen.show(live)
            read = (read_progress(job_id, store) for job_id in jobs)
            found = {job.job_id: session.with_next_try(workload, job) for job in read}
            screen.say_ends(found)
            screen.say_failing(found, now)
            return found
        ends = JobEnds(jobs, store)

        expect_shape = cache(partial(session.expect_shape, workload, jobs))

        def say_now() -> str:
            running = {name for job in jobs if job not in ends.ended for name in followed_ids(job)}
            if not running:
                return ""
            view = session.ledger(workload).read()
            return say_awaited(view, running, session.aws.clock.now(), expect_shape())

        def look_around() -> None:
            session.check_there()
            meanwhile()

        follower = LogFollower(live, ends.look_on, session.aws.clock)
        _show_until_over(follower, screen, note, say_now, look_around)
        ends.look_again()
    screen.show_ends(ends.ended)
    return ends.ended


def _show_instance(
    session: Session, workload: str, instance_id: str, screen: "Screen", *, follow: bool
) -> None:
    clock = session.aws.clock
    live = live_of_instance(session.log_source(workload), instance_id, clock.now())

    def find_worker() -> Worker | None:
        return session.ledger(workload).read().workers.get(instance_id)

    def has_ended() -> bool:
        worker = find_worker()
        return worker is None or worker.ended_at is not None

    def say_now() -> str:
        worker = find_worker()
        return f"{instance_id} is {worker.state}, and prints nothing yet" if worker else ""

    with noted_if_slow("reading what is printed ...") as note:
        if not follow:
            screen.show(live)
            return
        follower = LogFollower(live, has_ended, clock)
        _show_until_over(follower, screen, note, say_now, session.check_there)


def _show_until_over(
    follower: LogFollower,
    screen: "Screen",
    note: Tell,
    say_now: Callable[[], str],
    meanwhile: Callable[[], None],
) -> None:
    """Show what is new until the end; ``note`` hears what is waited for until something is."""
    pause, looks = Event(), 0
    while True:
        next_at = time.monotonic() + LOOK_SECONDS
        meanwhile()
        # Asked first: what comes with the end is shown by the look after it.
        is_over = follower.is_over
        screen.show(follower)
        if is_over:
            return
        if screen.has_shown:
            note("")
        elif looks % _LOOKS_A_NOTE == 0:
            # Who may not read the ledger gets the output all the same.
            with suppress(SpindownError):
                note(say_now())
        looks += 1
        pause.wait(max(0.0, next_at - time.monotonic()))


def _owner_of(session: Session, instance_id: str) -> str:
    """Return the workload that an instance is, or was, of; "": there is no such instance."""
    if not INSTANCE_ID.fullmatch(instance_id):
        return ""
    for workload in session.deployment.workloads:
        ledger = session.ledger(workload)
        if instance_id in ledger.read().workers or instance_id in ledger.read_ended():
            return workload
    return ""


#: A job with the number of an attempt, or with the machine where that is not known.
_Place = tuple[str, int | str]


def _place_of(job_id: str, attempt: int, instance_id: str) -> _Place:
    """Return whose a line is: an attempt has one machine."""
    return job_id, attempt or instance_id


class Screen:
    """Prints lines as they come, below a title whenever the attempt changes.

    What several machines print at the same time stands together for each attempt. No terminal
    obeys what is printed, nor does one that a file of it is shown on later.
    """

    def __init__(self, *, as_json: bool, timestamps: bool = False) -> None:
        self._as_json = as_json
        self.timestamps = timestamps
        #: What the last title is of: a job and its attempt, or its machine if that is not known.
        self._shown: _Place = ("", 0)
        #: Whether anything was printed that is new.
        self.has_shown = False

    def show(self, log: LiveLog | LogFollower) -> None:
        """Print what is new."""
        with suppress(NotFound):
            # No worker has been there yet, so there is no log.
            found = log.look()
            while lines := list(islice(found, _GATHERED_AT_ONCE)):
                for line in lines if self._as_json else self._gather(lines):
                    self._show_line(line)
                self.has_shown = True

    def _gather(self, lines: Sequence[LogLine]) -> Iterator[LogLine]:
        """Yield lines by attempt, those of the last title first."""
        found: dict[_Place, list[LogLine]] = {self._shown: []}
        for line in lines:
            found.setdefault(_place_of(line.job_id, line.attempt, line.instance_id), []).append(
                line
            )
        yield from chain.from_iterable(found.values())

    def show_kept(self, log: KeptLog) -> None:
        """Print what was kept of an attempt, or that nothing was."""
        place = {"job_id": log.job_id, "attempt": log.attempt}
        if log.left_out:
            self._head(log.job_id, log.attempt)
            words = (
                f"[spindown] {log.left_out:,} earlier attempts, whose workers were lost: not shown"
            )
            self._print({**place, "event": "lost_left_out", "attempts": log.left_out}, words)
        if log.text is None:
            self._head(log.job_id, log.attempt)
            self._print({**place, "event": "lost"}, _LOST)
            return
        for one in log.text.removesuffix("\n").split("\n"):
            self._show_line(
                LogLine(job_id=log.job_id, attempt=log.attempt, event=USER_OUTPUT, value=one)
            )

    def show_ends(self, ends: Mapping[str, JobProgress]) -> None:
        """Print how jobs ended: each as JSON, or one sentence for all."""
        if self._as_json:
            for end in ends.values():
                print(json.dumps(end_to_json(end)), flush=True)
            return
        self.say_ends(ends)

    def say_ends(self, ends: Mapping[str, JobProgress]) -> None:
        """Say how jobs ended, or how far they are, in one sentence for all."""
        if not self._as_json:
            print_aside(say_ends(ends))

    def say_failing(self, ends: Mapping[str, JobProgress], now: datetime) -> None:
        """Say of the first jobs that have failed so far when they are tried again."""
        failing = (end for end in ends.values() if end.failures_told)
        for end in () if self._as_json else islice(failing, _FAILING_SHOWN):
            print_aside(f"{end.job_id}: {say_failures(end, now)}")

    def _show_line(self, line: LogLine) -> None:
        self._head(line.job_id, line.attempt, line.instance_id)
        row = {
            name: value
            for name, value in encode(line).items()
            # An empty line is printed as well.
            if name == "value" or value not in {None, ""}
        }
        words = say_line(line)
        if self.timestamps and line.at is not None:
            words = f"{line.at.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}  {words}"
        self._print(row, words)

    def _head(self, job_id: str, attempt: int, instance_id: str = "") -> None:
        place = _place_of(job_id, attempt, instance_id)
        if place != self._shown and not self._as_json:
            number = f", attempt {attempt}" if attempt else ""
            machine = f" on {instance_id}" if instance_id else ""
            clear_note()
            print(printable(f"== {job_id or 'before a job'}{number}{machine} =="), flush=True)
        self._shown = place

    def _print(self, row: Mapping[str, Any], words: str) -> None:
        shown = json.dumps(row) if self._as_json else printable(words, keep="\t")
        clear_note()
        print(shown, flush=True)


_LOST = "[spindown] the worker was lost; what it had not sent was not saved"


#: Event -> its words; of any other event the value is shown as it is.
_WORDS = {
    USER_OUTPUT_LEFT_OUT: "[spindown] lines left out, too many in a second: {0.value}",
    USER_OUTPUT_LIMIT: "[spindown] no more today: {0.value} bytes are a day's bound",
    USER_PROGRESS: "[progress] {0.done}/{0.of} {0.value}",
    JOB_USED: "[spindown] {0.value}",
    ATTEMPT_FAILED: "[spindown] the attempt failed: {0.value}",
}


def say_line(line: LogLine) -> str:
    """Return a line as it was printed, or what a worker says of the output; not yet harmless."""
    words = _WORDS.get(line.event, "{0.value}").format(line)
    return words.rstrip() if line.event == USER_PROGRESS else words
