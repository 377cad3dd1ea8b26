"""The words of reason codes.

Code that decides must not import this; alerts (``spindown.control.alert``) may, and add sentences
of their own. What is stored may come from another version or from anybody else's hand: whatever it
is, it gives a line, and a line has only printable characters.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from itertools import islice

from spindown.contract.decision import (
    ActionRecord,
    DeadlineRecord,
    Decision,
    DecisionSummary,
    LaunchRequestRecord,
    Outcome,
    ShapeRecord,
)
from spindown.contract.job.message import is_id
from spindown.domain.batch import BatchTally
from spindown.domain.boot import BootProfile
from spindown.domain.fleet import Backlog
from spindown.domain.policy import Dispatch
from spindown.domain.reason import About, Reason, ReasonCode
from spindown.domain.relative_throughput import reference_machine
from spindown.domain.shape import parse_shape
from spindown.domain.verification import CheckResult, Interruption, VerifyCheck
from spindown.error import printable

_LOOK = "look at its console output and at the image, then deploy a fixed one"
_REMEDY = "fix that; `spindown doctor` has the command that tries again at once"
#: A shorter wait is told in seconds, a longer one in minutes.
_SAID_IN_SECONDS = 120.0
#: Characters of a fault that are told, of a line, and of one parameter of a reason without words.
_FAULT_AT_MOST = 300
_LINE_AT_MOST = 4000
_ERROR_AT_MOST = 200
_VALUE_AT_MOST = 100
_VALUES_AT_MOST = 10
#: What making words of parameters raises that are not those of the code.
_MISFITS = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)


def say(reason: Reason) -> str:
    """Return a reason in words; "" if there is none.

    A clause without a full stop, but for COST_... and CASE_...: these are whole sentences. A
    reason that its words do not fit is told as ``code (parameter=value, ...)``.
    """
    return _line(_say_code(reason.code, reason.about))


def say_outgrown(reason: Reason, memory_gib: float, *, is_of_gpu: bool) -> str:
    """Return why a job fails that has run out of memory with so many GiB, and may have no more."""
    what = "GPU memory" if is_of_gpu else "memory"
    return _line(f"ran out of {what} with {memory_gib:g} GiB; {say(reason)}")


def say_mode(deadline: DeadlineRecord) -> str:
    """Return what a deadline lets a waiting job be bought; "" if it does not say."""
    return _line(_say_code(deadline.mode, {}))


def _line(text: str) -> str:
    return printable(text[:_LINE_AT_MOST])


def _say_code(code: str, about: About) -> str:
    """Return the words of a code, which another version may have written."""
    try:
        words = _WORDS[ReasonCode(code)]
        return words.format_map(about) if isinstance(words, str) else words(about)
    except _MISFITS:
        pairs = (
            f"{name}={_spell(value)}" for name, value in islice(about.items(), _VALUES_AT_MOST)
        )
        return f"{code} ({', '.join(pairs)})" if about else code


def _spell(value: object) -> str:
    try:
        return str(value)[:_VALUE_AT_MOST]
    except _MISFITS:
        return "?"


def say_remedy(reason: Reason) -> str:
    """Return which setting to change: an imperative clause or more, settings in backticks."""
    return _REMEDIES[reason.code]


def say_span(seconds: float) -> str:
    """Return a span of time as minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min" if minutes and not rest else f"{minutes} min {rest} s"


def _clock(instant: str | float) -> str:
    return f"{datetime.fromisoformat(str(instant)):%H:%M:%S} UTC"


def say_number(number: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, never as a power of ten."""
    return f"{Decimal(f'{number:.{digits}g}'):,f}"


def say_dollars(dollars: float) -> str:
    """Return what a job or a batch has cost, wherever that is told; no cent has many digits.

    Below a dollar three of them count: 0.0000802, 0.278; else cents.
    """
    return say_number(dollars) if abs(dollars) < 1.0 else f"{dollars:,.2f}"


def say_boot(boot: BootProfile) -> str:
    """Say how long boots take, and which phase takes longest."""
    phases = ", ".join(f"{phase} {seconds:.0f} s" for phase, seconds in boot.phases.items())
    return f"{boot.seconds:.0f} s, most of it {boot.slowest}: {phases}"


def _plain(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _tell_apart(one: str | float, other: str | float) -> tuple[str, str]:
    """Return two numbers with as many digits as it takes to see that they differ."""
    shown = _plain(one), _plain(other)
    return shown if len(set(shown)) > 1 else (str(one), str(other))


def say_count(number: str | float, thing: str) -> str:
    """Return a number, which may be a text already, with its noun: ``1 job``, ``7,856 jobs``."""
    shown = f"{number:,}" if isinstance(number, int) else number
    return f"1 {thing}" if number in {1, "1"} else f"{shown} {thing}s"


def say_error(error: object) -> str:
    """Return the first line of an error that says something, cut short; "": it says nothing."""
    lines = error.splitlines() if isinstance(error, str) else ()
    said = next((line.strip() for line in lines if line.strip()), "")
    return printable(said[:_ERROR_AT_MOST])


def say_items(done: int, failed: int, of: int | None) -> str:
    """Return how many items are done, and how many have failed: ``4/9 items done, 2 failed``."""
    what = f"{done:,}/{say_count(of, 'item')}" if of is not None else say_count(done, "item")
    return f"{what} done" + (f", {failed:,} failed" if failed else "")


def say_waiting(jobs: int) -> str:
    """Return how many jobs wait: ``1 job waits``, ``40 jobs wait``."""
    return f"{say_count(jobs, 'job')} {'waits' if jobs == 1 else 'wait'}"


def say_coming(booting: int, launching: int) -> str:
    """Return that machines come for what waits, ``1 machine boots for what waits``; "": none."""
    parts = [
        f"{say_count(booting, 'machine')} {'boots' if booting == 1 else 'boot'} for what waits"
        if booting
        else "",
        f"{say_count(launching, 'request')} to launch {_are(launching)} under way"
        if launching
        else "",
    ]
    return ", ".join(filter(None, parts))


def say_dead_letters(number: int, workload: str) -> str:
    """Return how many dead letters there are, and what tells of them."""
    return f"{number:,} in the dead-letter queue: `spindown redrive {workload} --list` says why"


def say_way_back(workload: str, deployed: int) -> str:
    """Return how a workload launches again whose ``max_workers`` is 0; so many are deployed."""
    if deployed:
        return f"`spindown drain {workload} --undo` takes a drain back"
    return f"0 is deployed: `spindown policy set {workload} max_workers=1` lets it launch"


def say_next_try(at: datetime | None, now: datetime) -> str:
    """Return when a job that waits is tried again; ``at``: before when nobody can receive it."""
    # Where nothing may be launched no slot comes, and what stops that is told elsewhere.
    soon = "next try: once a slot is free"
    if at is None or at <= now:
        return soon
    seconds = (at - now).total_seconds()
    left = f"{seconds:.0f} s" if seconds < _SAID_IN_SECONDS else f"{seconds / 60:.0f} min"
    return f"{soon}, from {at:%H:%M:%S} UTC on, in {left}"


def say_days(days: int) -> str:
    """Return a span that ends now: ``the last day``, ``the last 14 days``."""
    return "the last day" if days == 1 else f"the last {days} days"


def _are(number: str | float) -> str:
    return "is" if number == 1 else "are"


def _were(number: str | float) -> str:
    return "was" if number == 1 else "were"


def _inner(about: About, name: str = "why") -> str:
    """Return the words of the reason that another reason holds, its code as ``name``.

    It is told without that parameter: a reason that holds itself would have no end.
    """
    rest = {key: value for key, value in about.items() if key != name}
    return _say_code(str(about[name]), rest)


def say_batch_end(batch_id: str, tally: BatchTally, before: str = "") -> str:
    """Say how a batch ended, what it cost, and which command tells more.

    ``before``: the batch for which it waited, if it was cancelled because that did not succeed.
    """
    counts = (
        (tally.items_failed, "item", "failed"),
        (tally.given_up, "job", "given up"),
        (tally.cancelled, "job", "cancelled"),
    )
    bad = "; ".join(f"{say_count(count, of)} {what}" for count, of, what in counts if count)
    done = say_count(tally.items - tally.items_failed, "item")
    cost = f", ${say_dollars(tally.dollars)} at work" if tally.dollars else ""
    because = f" ({before}, for which it waited, did not succeed)" if before else ""
    says = f"Batch {batch_id} is over: {done} done{f', {bad}' if bad else ''}{because}{cost}."
    more = f"spindown results {batch_id}{' --failed' if tally.items_failed else ''}"
    return _line(f"{says} See `{more}`.")


def say_batch_given_up(batch_id: str, why: Reason) -> str:
    """Say that a batch is followed no more, and why."""
    return f"Batch {batch_id}: {say(why)}."


def say_outcome(outcome: Outcome, summary: DecisionSummary) -> str:
    """Return a decision as one sentence for a person, without a full stop.

    What stands in the way is that of one shape, which is named.
    """
    is_of_shape = bool(summary.shape) and outcome in _OF_SHAPE
    whose = f"{say_shape(summary.shape)}: " if is_of_shape else ""
    return _line(whose + _say_outcome(outcome, summary))


def say_last_outcome(outcome: Outcome, summary: DecisionSummary, waiting: Backlog) -> str:
    """Return the last decision as ``say_outcome`` does, for who sees what the queue holds now.

    One that found nothing was made before that came, or could not see it.
    """
    if summary.sizing.code is ReasonCode.NOTHING_WAITS:
        if waiting.visible:
            return "nothing waited; the next tick decides on what waits now"
        if waiting.in_flight + waiting.delayed:
            return (
                "no message can be received now: a worker has just taken it, or it can be again "
                "within a `lease_duration`"
            )
    return say_outcome(outcome, summary)


_OF_SHAPE = frozenset({Outcome.HELD, Outcome.BLOCKED, Outcome.NOTHING_FITS, Outcome.REFUSED})


def _say_outcome(outcome: Outcome, summary: DecisionSummary) -> str:
    sizing, why, early = _say_sizing(summary), say(summary.why), say(summary.ended_early)
    match outcome:
        case Outcome.LOCKED:
            return "another tick is at work"
        case Outcome.IDLE:
            return "nothing waits and no worker takes jobs"
        case Outcome.ENOUGH:
            return sizing
        case Outcome.HELD if summary.retry_at is None or not why:
            return sizing
        case Outcome.HELD:
            said = f"no offer may be taken before {summary.retry_at:%H:%M:%S} UTC: {why}"
        case Outcome.LAUNCHED:
            given = (("launched", summary.launched), ("adopted", summary.adopted))
            said = ", ".join(f"{verb} {_counts(pools)}" for verb, pools in given if pools)
        case Outcome.BLOCKED:
            said = why or "no offer of the list could be asked for"
        case Outcome.NOTHING_FITS:
            said = f"no offer fits: {why or 'none is known'}"
        case Outcome.REFUSED:
            said = f"EC2 gave nothing in {say_count(summary.requests, 'request')}"
    return f"{said} ({sizing})" + (f"; {early}" if early else "")


def say_shape(name: str) -> str:
    """Return the name of a shape, and what its machines have: ``c4m16s (4 vCPUs, 16 GiB, shared)``.

    What is no name of a shape is told as it is.
    """
    shape = parse_shape(name)
    if shape is None:
        return _line(name)
    parts = [
        say_count(shape.vcpus, "vCPU") if shape.vcpus else "",
        f"{shape.memory_gib} GiB" if shape.memory_gib else "",
        say_count(shape.gpus, "GPU") if shape.gpus else "",
        f"{shape.gpu_memory_gib} GiB of VRAM" if shape.gpu_memory_gib else "",
        shape.architecture,
        "" if shape.dispatch is Dispatch.POOL else shape.dispatch.value,
    ]
    return f"{name} ({', '.join(filter(None, parts)) or 'any that the workload may have'})"


def say_shape_outcome(each: ShapeRecord) -> str:
    """Return what a decision came to for one shape, as a sentence without a full stop."""
    why, sizing = say(each.blocked_by), say(each.reason)
    return _line(f"no machine of {say_shape(each.shape)}: {why} ({sizing})" if why else sizing)


def _say_sizing(summary: DecisionSummary) -> str:
    """Return the sizing, without a bound that is told already as what stops the launch."""
    about = summary.sizing.about
    stops = summary.why.code is ReasonCode.MAX_WORKERS and about.get("bound") == "max_workers"
    return _line(_inner(about)) if stops and "why" in about else say(summary.sizing)


def _counts(pools: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {pool}" for pool, count in pools.items())


#: Kind of an action -> what it does to its subject.
_ACTIONS = {
    "repair": "correct the row of {subject}",
    "end": "note that {subject} has ended",
    "free": "give the jobs of {subject} back",
    "condemn": "condemn {subject}",
    "terminate": "terminate {subject}",
    "interrupt": "note that EC2 takes {subject} away",
    "route": "route the messages of {subject} by their types",
    "adopt": "adopt the instances of launch {subject}",
    "replay": "ask again for launch {subject}",
    "give-up": "give up launch {subject}",
    "migrate": "tell {subject} to give its jobs back",
    "wind-down": "tell {subject} to end after its jobs",
    "launch": "launch workers for {subject}",
}


def say_action(action: ActionRecord) -> str:
    """Return what an action does, as an imperative clause."""
    words = _ACTIONS.get(action.kind)
    if words is None:
        return _line(f"{action.kind} {action.subject}")
    is_spent = action.reason.code is ReasonCode.BUDGET_ENDS_WORKER
    more = ", or at once if `when_spent` says so" if is_spent else ""
    return _line(words.format(subject=action.subject) + more)


def say_asked_pools(decision: Decision) -> Mapping[str, str]:
    """Return what came of each pool that EC2 was asked for: its name -> words."""
    by_offer: dict[str, str] = {}
    for request in decision.requests:
        by_offer.update({pool: _say_asked_pool(request, pool) for pool in request.pools})
    return by_offer


def _say_asked_pool(request: LaunchRequestRecord, pool: str) -> str:
    given = list(request.instances.values()).count(pool)
    if given:
        return f"{request.outcome} {given}"
    codes = [refusal.code for refusal in request.refusals if refusal.pool in {"", pool}]
    if codes:
        return f"refused: {codes[0]}"
    return "asked for; EC2 chose another" if request.instances else f"asked for: {request.outcome}"


def say_notes(decision: Decision) -> Iterator[str]:
    """Yield what else a person should know of a decision, a sentence each, without full stops."""
    yield from (say(note) for note in decision.notes)
    yield from say_deadlines(decision)


#: Deadlines of which the notes tell, and verbs of one job and of several.
_TIGHT = 3
_ONE, _MANY = ("was", "is", "takes", "waits"), ("were", "are", "take", "wait")


def say_deadlines(decision: Decision) -> Iterator[str]:
    """Yield what the tightest deadlines ask for."""
    for each in decision.deadlines[:_TIGHT]:
        name, due = name_of(each), f"{each.due_at:%Y-%m-%d %H:%M} UTC"
        was, is_, takes, waits = _MANY if each.jobs > 1 else _ONE
        if each.due_at < decision.at:
            yield f"{name} {was} due {due} and {is_} not finished"
        elif each.slack_seconds < 0:
            yield f"{name} {is_} due {due} and {takes} longer"
        elif each.waits_until is not None:
            until = f"{each.waits_until:%H:%M} UTC"
            yield f"{name} {waits} for spot until {until}, to be done by {due}"
        elif each.mode:
            yield f"{name} {is_} due {due}: {say_mode(each)}"


def name_of(deadline: DeadlineRecord) -> str:
    """Return what a person knows a job by."""
    if deadline.job_id:
        # A worker writes it, and people are told it in an e-mail.
        return deadline.job_id if is_id(deadline.job_id) else "a job without a proper id"
    return (
        "a job that nobody has begun" if deadline.jobs == 1 else f"{deadline.jobs} jobs not begun"
    )


def _never_checked_in(about: About) -> str:
    return f"never checked in within {say_span(float(about['within_seconds']))}"


#: Need -> what it is called, and the unit of its sizes.
_NEED_WORDS = {
    "memory_gib": ("memory", "GiB"),
    "gpu_memory_gib": ("VRAM", "GiB"),
    "vcpus": ("cores", "vCPUs"),
}


def _resized(about: About, word: str) -> str:
    name, unit = _NEED_WORDS[str(about["need"])]
    before, size = (say_number(float(about[key])) for key in ("before", "size"))
    asked = about.get("asked", about["before"])
    # Sizes change step by step on a scale of their own.
    first = "" if asked == about["before"] else f" ({say_number(float(asked))} asked for)"
    return f"{name} {word} {before} to {size} {unit}{first}"


def _seen(about: About, thing: str) -> str:
    """Return how many were seen, of which older ones count less."""
    return say_count(round(float(about["jobs"])), thing)


def _day(about: About) -> str:
    return str(about["until"])[:10]


def _too_much(about: About) -> str:
    """Return what is asked for, unless that is told already, and the most that may be."""
    asked, most = _tell_apart(about["asked"], about["most"])
    named = "" if about.get("is_told") else f"{about['field']} is {asked}, and "
    return f"{named}the most is {most}: ask for less"


def _no_such_size(about: About) -> str:
    """Of a machine that jobs share, numbers are for each job: they must not seem too small."""
    field, asked, most = about["field"], _plain(about["asked"]), _plain(about["most"])
    if about.get("given", about["asked"]) != about["asked"]:
        asked = f"{_plain(about['given'])}, rounded up to {asked}"
    shared = f" for each of {about['slots']} jobs on it" if about.get("slots", 1) != 1 else ""
    what = f"{field} is {asked}, and the most on sale is {most}{shared}"
    if field == "architectures":
        what = "none on sale has all of it at once"
    size = say_shape(str(about["shape"]))
    return (
        f"no machine that this workload may have is of the size {size}: {what}: "
        "ask for less, or allow larger machines"
    )


def _size_learned(about: About) -> str:
    used, room = say_number(float(about["used"])), f"{float(about['room']) - 1.0:.0%}"
    return (
        f"{_resized(about, 'from')}: of {_seen(about, 'job')} seen 99 % used at most {used} GiB, "
        f"and after so many {room.replace('%', ' %')} of room is kept above that"
    )


def _size_back_failures(about: About) -> str:
    share, before = (f"{float(about[key]):.0%}" for key in ("share", "share_before"))
    return (
        f"{_resized(about, 'back from')}, and no smaller before {_day(about)}: of "
        f"{_seen(about, 'attempt')} {share} failed or ran out of memory, {before} before"
    )


def _size_ran_out(about: About) -> str:
    share = f"{float(about['share']):.0%}".replace("%", " %")
    return (
        f"{_resized(about, 'from')}, and no smaller before {_day(about)}: of "
        f"{_seen(about, 'attempt')} {share} ran out of memory"
    )


def _size_back_cost(about: About) -> str:
    return f"{_resized(about, 'back from')}, and no smaller before {_day(about)}: {_costs(about)}"


def _costs(about: About) -> str:
    cost, before = (say_number(float(about[key])) for key in ("cost", "cost_before"))
    return f"an item costs ${cost}, and ${before} before"


def _size_of_hour(about: About) -> str:
    day, hour = divmod(int(about["hour"]), 24)
    weekday = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")[day]
    text = _resized(about, "from")
    return f"{text}: on {weekday} from {hour:02d}:00 UTC jobs have needed more each week"


def _cores_cheaper(about: About) -> str:
    return f"{_resized(about, 'from')}: {_costs(about)}"


def _cores_tried(about: About) -> str:
    used = say_number(float(about["used"]))
    return (
        f"{_resized(about, 'from')}, to see what an item costs so: {_seen(about, 'attempt')} used "
        f"{used} cores on average"
    )


def _pool_never_checked_in(about: About) -> str:
    ended = _inner(about, "ended")
    return f"its instance never checked in: {ended}" if ended else "its instance never checked in"


#: After what an instance still runs, by ``domain.termination.DueKind``.
_DUE = {
    "old": "its lifetime and grace were over",
    "spent": "it was told that the budget is used up",
    "surplus": "it was told that a limit has no room for it",
    "drained": "it said that it had ended its work",
}
#: EC2's StateReason.Code -> words.
_EC2_SAYS = {
    "Server.SpotInstanceTermination": "reclaimed, without notice",
    "Server.SpotInstanceShutdown": "reclaimed, without notice",
    "Client.InstanceInitiatedShutdown": "ended itself",
    "Client.UserInitiatedShutdown": "terminated from outside",
}


def _moment(instant: str | float) -> str:
    return f"{datetime.fromisoformat(str(instant)):%Y-%m-%d %H:%M} UTC"


def _failed(words: str) -> Callable[[About], str]:
    def say_failed(about: About) -> str:
        asked = _ASKED.get(str(about["asked"]), str(about["asked"]))
        where = about.get("launch_id") or about.get("region") or about.get("subject")
        return f"{asked}{f' ({where})' if where else ''}: {words} ({about['said']})"

    return say_failed


#: What a call asked for, or was to do.
_ASKED = {
    "instances": "asking EC2 for our instances",
    "reclaims": "asking EC2 what it takes away",
    "launches": "asking EC2 for the instances of a launch",
    "account": "reading the month",
    "repair": "correcting a row",
    "end": "noting an end",
    "free": "giving jobs back",
    "condemn": "condemning a worker",
    "terminate": "terminating instances",
    "interrupt": "noting an interruption",
    "replay": "asking for a launch again",
    "launch": "launching workers that take over",
}


def _items_per_hour(about: About) -> str:
    """Return a need, which is never told as 0."""
    return f"{max(float(about['items_per_hour']), 1.0):,.0f} items/h"


#: Whose work needs no GPU has the second.
_REFERENCE = f"{reference_machine(without_gpu=False)} (or {reference_machine(without_gpu=True)})"


def _wasted_work(about: About) -> str:
    return (
        f"{say_count(about['attempts'], 'attempt')} ended by interruptions without "
        f"{'an item' if about.get('saves') else 'progress'}, the "
        f"longest after {say_number(float(about['hours']))} h of work on {_REFERENCE}, for "
        f"${float(about['dollars']):.2f}"
    )


def _nearest(about: About) -> str:
    return f"nearest is {about['offer']}: {_inner(about, 'ruled_out_by')}"


def _strikes(happened: str, remedy: str) -> Callable[[About], str]:
    def words(about: About) -> str:
        fault = _inner(about, "fault_code")[:_FAULT_AT_MOST].rstrip(". ")
        advice = f"{fault}; {_REMEDY}" if fault else remedy
        last = f"the last one {about['instance_id']}"
        return f"{about['count']} instances in a row {happened}, {last}: {advice}"

    return words


def _dear(cause: str) -> Callable[[About], str]:
    def say_dear(about: About) -> str:
        cost, usual = (say_number(float(about[name]), 6) for name in ("cost", "usual"))
        return f"An item costs {cost} USD, usually {usual}. {cause.format_map(about)}"

    return say_dear


def say_check(result: CheckResult) -> str:
    """Return what one check of `spindown verify` has found, as a clause without a full stop."""
    about = {"seconds": 0, **result.about}
    if result.check in _NOT_SEEN and not result.passed and "seconds" not in result.about:
        return _NOT_SEEN[result.check]
    return _line(_CHECKS[result.check](about))


def _launch_times(about: About) -> str:
    if not about["machines"]:
        return "no machine was launched"
    boot = about.get("boot_seconds")
    booted = "none has checked in" if boot is None else f"the first booted in {_span(boot)}"
    return (
        f"{say_count(about['machines'], 'machine')}; the first after "
        f"{_span(about['launch_seconds'])}, {booted}"
    )


def _say_interruption(about: About) -> str:
    if not about["how"]:
        return "no machine was interrupted"
    if about["how"] == Interruption.BY_HAND:
        return "one machine was ended by TerminateInstances, without a notice"
    notice = about.get("notice_seconds")
    heard = "no notice came" if notice is None else f"its notice came after {_span(notice)}"
    return f"one machine was interrupted by AWS Fault Injection Service; {heard}"


def _say_requeue(about: About) -> str:
    if not about["requeues"]:
        return "the job was never requeued"
    times = say_count(about["requeues"], "time")
    return f"requeued {times}; it went on after {_span(about['seconds'])}"


def _say_results(about: About) -> str:
    wrong = ", ".join(
        f"{about[name]} {name}" for name in ("missing", "repeated", "wrong", "failed")
    )
    have = "has" if about["right"] == 1 else "have"
    sent = say_count(about["sent"], "item")
    return f"{about['right']} of {sent} {have} exactly one right result ({wrong})"


def _say_left(about: About) -> str:
    return (
        f"{say_count(about['running'], 'machine')} running, "
        f"{say_count(about['messages'], 'message')} in the queue, "
        f"{say_count(about['dead_letters'], 'dead letter')}"
    )


def _say_alarms(about: About) -> str:
    if "alarms" not in about:
        return "the alarms could not be read (cloudwatch:DescribeAlarms)"
    ringing = about["ringing"]
    return f"{say_count(about['alarms'], 'alarm')}, " + (
        f"in alarm: {ringing}" if ringing else "none in alarm"
    )


def _say_charge(about: About) -> str:
    return (
        f"${about['charged']:.4f} charged and ${about['refunded']:.4f} free; by EC2 they ran for "
        f"{_span(about['ran_seconds'])}, worth ${about['worth']:.4f}"
    )


def _span(seconds: str | float) -> str:
    return say_span(float(seconds))


_CHECKS: Mapping[VerifyCheck, Callable[[About], str]] = {
    VerifyCheck.LAUNCHED: _launch_times,
    VerifyCheck.FIRST_ITEM: lambda a: f"done {_span(a['seconds'])} after the job was sent",
    VerifyCheck.INTERRUPTED: _say_interruption,
    VerifyCheck.REQUEUED: _say_requeue,
    VerifyCheck.COMPLETED: lambda a: f"{_span(a['seconds'])} after the job was sent",
    VerifyCheck.RESULTS: _say_results,
    VerifyCheck.IDLE_END: lambda a: f"the last machine ended itself {_span(a['seconds'])} later",
    VerifyCheck.NOTHING_LEFT: _say_left,
    VerifyCheck.ALARMS: _say_alarms,
    VerifyCheck.CHARGED: _say_charge,
    VerifyCheck.WITHIN_AMOUNT: lambda a: f"${a['dollars']:.4f} of ${a['at_most']:.2f} at most",
}
_NOT_SEEN: Mapping[VerifyCheck, str] = {
    VerifyCheck.FIRST_ITEM: "no item was done",
    VerifyCheck.COMPLETED: "the job was not completed",
    VerifyCheck.IDLE_END: "a machine did not end by itself",
}


def say_case(code: ReasonCode) -> str:
    """Return the name of a case in which Spindown may be the wrong thing to use."""
    return _CASES[code]


def _latency(about: About) -> str:
    wait, each = _say_wait(about["wait"]), float(about["each"])
    then = f"no sooner than the {_say_wait(about['now'])} of the advised settings"
    if float(about["wait"]) < float(about["now"]):
        then = f"worth it from ${say_number(each)} a job"
    elif not about["helps"]:
        then += ", since jobs wait for each other and not for a boot (`max_workers`)"
    return (
        f"A cold start takes {about['boot']:.0f} s. With start_within = 1m, drain_within = 2m, "
        f"scale_up_threshold = 1 and warm_workers = {about['warm_workers']} the month costs "
        f"${about['month']:,.2f}, ${about['more']:,.2f} more, and 95 % of jobs start within "
        f"{wait}: {then}."
    )


def _say_wait(about: str | float) -> str:
    seconds = float(about)
    return f"{seconds:.0f} s" if seconds < 2 * _MINUTE else f"{seconds / _MINUTE:.0f} min"


def _constant_load(about: About) -> str:
    machines, tips = about["machines"], float(about["tips"])
    one = f"One reserved {about['machine']} costs"
    reserved = one if machines == 1 else f"{machines} reserved {about['machine']} cost"
    kept = "it" if machines == 1 else "them"
    when = (
        f"that pays from {_percent(tips)} busy hours on"
        if tips <= 1.0
        else "no load is constant enough for that to pay"
    )
    return (
        f"{reserved} ${about['month']:,.2f} a month; the work would keep {kept} busy for "
        f"{_percent(float(about['share']))} of the hours, and {when}."
    )


def _small_bill(about: About) -> str:
    saving, tips = float(about["saving"]), float(about["tips"])
    from_here = (
        f"it saves ${about['least']:.0f} from {tips:,.0f} such jobs a month on, "
        f"now {about['jobs']:,.0f}"
        if math.isfinite(tips)
        else "more of the same work would not change that"
    )
    text = f"saves ${saving:,.2f}" if saving >= 0.0 else f"costs ${-saving:,.2f} more"
    return (
        f"The same work on demand, started and stopped by hand without an idle minute, costs "
        f"${about['month']:,.2f} a month: Spindown {text}; {from_here}."
    )


def _long_items(about: About) -> str:
    longest, tips = float(about["longest"]), float(about["tips"])
    when = (
        f"from {say_number(tips)} h on such an item costs more on spot than on demand"
        if math.isfinite(tips)
        else "no length makes spot dearer than on demand"
    )
    return (
        f"An item that keeps no checkpoint begins anew after an interruption; the longest here "
        f"takes {say_number(longest)} h. At {say_number(float(about['rate']))} reclaims an hour, "
        f"{when}: "
        "keep a checkpoint in SPINDOWN_CHECKPOINT, or make items shorter."
    )


def _no_interruption(about: About) -> str:
    worth = (
        f"worth it if an interruption costs you more than ${about['each']:,.2f}"
        if math.isfinite(float(about["each"]))
        else "none was seen here"
    )
    return (
        f"Expect {say_count(round(float(about['interruptions'])), 'interruption')} a month, "
        f"{about['redone_hours']:.1f} hours of work done again. On demand only costs "
        f"${about['month']:,.2f} a month, ${about['more']:,.2f} more: {worth}."
    )


def _max_workers(about: About) -> str:
    said = f"max_workers is {about['max_workers']}"
    if about["max_workers"] or "deployed" not in about:
        return said
    return f"{said}: {say_way_back(str(about['workload']), int(about['deployed']))}"


def _percent(share: float) -> str:
    """Return a share in words; little is not nothing."""
    return "less than 1%" if 0.0 < share < _LEAST_PERCENT else f"{share:.0%}"


def _gpus_found(about: About) -> str:
    return f"it has {say_count(_plain(about['found']), 'GPU')}"


_MINUTE = 60.0
_LEAST_PERCENT = 0.01

_WORDS: Mapping[ReasonCode, str | Callable[[About], str]] = {
    ReasonCode.NONE: "",
    ReasonCode.IDLE: "it was idle",
    ReasonCode.JOB_OVER: "the job is over that it was launched for",
    ReasonCode.IDLE_UNHEARD: "it was idle, and the ledger did not answer",
    ReasonCode.LIFETIME: "its max_lifetime is over",
    ReasonCode.INTERRUPTED: "EC2 takes it away",
    ReasonCode.STOPPED: "the system was asked to stop",
    ReasonCode.CONDEMNED: "the scaler ended it",
    ReasonCode.OTHER_CODE: "other code is deployed",
    ReasonCode.NO_ROOM: "the policy's limits leave no room for it",
    ReasonCode.MIGRATED: "another worker goes on with its jobs",
    ReasonCode.BUDGET_SPENT: "the month's budget is used up",
    ReasonCode.UNFIT: "{fault}",
    ReasonCode.FAULTY: "the machine or the worker failed again and again",
    ReasonCode.JOBS_FAILED: "its last jobs all failed",
    ReasonCode.EC2_SAID: lambda about: _EC2_SAYS.get(
        str(about["state_reason"]), str(about["state_reason"])
    ),
    ReasonCode.EC2_STATE: "EC2 says that it is {state}",
    ReasonCode.EC2_RECLAIMED: "EC2 has reclaimed it",
    ReasonCode.UNKNOWN_TO_EC2: "EC2 does not know it any more",
    ReasonCode.NEVER_CHECKED_IN: _never_checked_in,
    ReasonCode.NEVER_POWERED_OFF: "drained, but never powered off",
    ReasonCode.TOO_OLD: lambda about: (
        f"older than its lifetime and grace ({say_span(float(about['age_seconds']))})"
    ),
    ReasonCode.OUTSTAYED: lambda about: (
        f"still runs {say_span(float(about['seconds']))} after {_DUE[str(about['due'])]}"
    ),
    ReasonCode.IDLE_TOO_LONG: lambda about: (
        f"idle for {say_span(float(about['idle_seconds']))}, beyond its timeout and grace"
    ),
    ReasonCode.SILENT: lambda about: f"no heartbeat for {say_span(float(about['silent_seconds']))}",
    ReasonCode.NO_ROW: "it has no row in the ledger",
    ReasonCode.ADOPTED: "adopted",
    ReasonCode.ADOPTED_IN_PART: (
        "adopted; nobody asked EC2 for over an hour: what else it gave and ended again is not in "
        "the spend"
    ),
    ReasonCode.NEVER_REACHED_EC2: "it never reached EC2",
    ReasonCode.FATE_UNKNOWN: (
        "nobody asked EC2 for over an hour: what it gave and ended again is not in the spend"
    ),
    ReasonCode.REFUSED: "{said}",
    ReasonCode.REQUEST_UNREADABLE: "its request cannot be read",
    ReasonCode.REQUEST_ALTERED: "its stored request is not one that Spindown would make now",
    ReasonCode.ROW_FALSE: "its row said what cannot be",
    ReasonCode.NOT_ENDED: "its row said that it had ended, but EC2 says that it runs",
    ReasonCode.REGION_REMOVED: "nothing is deployed in {region} any more",
    ReasonCode.INSTANCE_TYPES: "{found} is not listed",
    ReasonCode.FAMILIES_DENIED: "family {found} is left out",
    ReasonCode.ALLOW_BARE_METAL: "it is bare metal",
    ReasonCode.ARCHITECTURES: "it is {found}, not {wanted}",
    ReasonCode.GPU_MANUFACTURER: lambda about: (
        f"its GPU is made by {about['found'] or 'nobody'}, not {about['wanted']}"
    ),
    ReasonCode.GPU_NAMES: lambda about: (
        f"it has {about['found'] or 'no GPU'}, not {about['wanted']}"
    ),
    ReasonCode.GPU_NAMES_DENIED: lambda about: f"{about['found'] or 'no GPU'} is left out",
    ReasonCode.ALLOW_FRACTIONAL_GPU: "it has {found:g} of a GPU",
    ReasonCode.GPU_COUNT_MIN: lambda about: f"{_gpus_found(about)}, fewer than {about['wanted']:g}",
    ReasonCode.GPU_COUNT_MAX: lambda about: f"{_gpus_found(about)}, more than {about['wanted']:g}",
    ReasonCode.GPU_MEMORY_MIB_MIN: "{found} MiB of VRAM are less than {wanted}",
    ReasonCode.GPU_MEMORY_TOTAL_MIB_MIN: "{found:g} MiB of VRAM in all are less than {wanted}",
    ReasonCode.VCPUS_MIN: lambda about: (
        f"it has {say_count(about['found'], 'vCPU')}, fewer than {about['wanted']}"
    ),
    ReasonCode.MEMORY_MIB_MIN: "{found} MiB are less than {wanted}",
    ReasonCode.PRICE_UNKNOWN: "no price is known, neither as spot nor on demand",
    ReasonCode.PRICE_ABSURD: "{price:g} USD/h cannot be right",
    ReasonCode.OVER_MAX_PRICE: "{price:.4f} USD/h is above {most:g}",
    ReasonCode.OVER_GPU_PRICE: "{price:.4f} USD per GPU-hour is above {most:g}",
    ReasonCode.OVER_HEADROOM: "{price:.4f} USD/h, and only {left:.4f} USD/h may be added",
    ReasonCode.NO_RUNG: "no rung of the price ladder allows {capacity_type} at {price:.4f} USD/h",
    ReasonCode.RUNG_OPENS_LATER: lambda about: (
        f"{about['capacity_type']} at {about['price']:.4f} USD/h opens at {_clock(about['at'])}"
    ),
    ReasonCode.ABOVE_ON_DEMAND: ("{spot:.4f} USD/h as spot is more than {on_demand:.4f} on demand"),
    ReasonCode.UNRELIABLE: "it lives an hour with probability {survives:.3f}, below {least:g}",
    ReasonCode.POOL_COOLING_DOWN: lambda about: (
        f"{_inner(about)}; cooling down until {_clock(about['until'])}"
    ),
    ReasonCode.QUOTA_FULL: lambda about: (
        f"quota {about['quota']} is full; blocked until {_clock(about['until'])}"
    ),
    ReasonCode.QUOTA_SHORT: "it takes {vcpus} vCPUs, quota {quota} has {left:g} left",
    ReasonCode.IN_TIME: "by the usual length of a job, the fleet finishes the backlog in time",
    ReasonCode.NOTHING_WAITS: "nothing waits",
    ReasonCode.SLOTS_FREE: "every waiting job has a slot that is free or boots",
    ReasonCode.ALL_IN_FLIGHT: lambda about: (
        f"{say_count(about['messages'], 'message')} {_are(about['messages'])} hidden for a while, "
        "waiting after a failure, or with a worker that ends"
    ),
    ReasonCode.MACHINE_EACH: lambda about: (
        "the job gets a machine of its own"
        if about["jobs"] == 1
        else f"each of {about['jobs']} jobs gets a machine of its own"
    ),
    ReasonCode.MAY_TAKE_OVER: lambda about: (
        f"{say_count(about['jobs'], 'job')} {_are(about['jobs'])} left without a machine: one that "
        f"is done within {about['seconds']:g} s of its launch takes the next, since so much is paid"
    ),
    ReasonCode.THROUGHPUT_MISSING: lambda about: (
        f"{_items_per_hour(about)} more are needed to finish {say_count(about['jobs'], 'job')} in "
        "time"
    ),
    ReasonCode.NO_SLOT_IN_TIME: "no slot is free within start_within",
    ReasonCode.TOO_LATE_NEXT_TICK: lambda about: (
        f"{say_count(about['jobs'], 'job')} would start too late if this waited a tick"
    ),
    ReasonCode.FEWEST_NOW: lambda about: (
        f"{say_count(about['slots'], 'slot')} {_are(about['slots'])} enough for "
        f"{say_count(about['jobs'], 'waiting job')} if launched now; later it would take more"
    ),
    ReasonCode.TO_MEASURE: lambda about: (
        "a first machine shows how long a job takes: nobody has measured that, and "
        f"{say_count(about['jobs'], 'job')} {'waits' if about['jobs'] == 1 else 'wait'}"
    ),
    ReasonCode.OVER_CAPACITY: lambda about: (
        f"{say_count(about['jobs'], 'job')} {'wants' if about['jobs'] == 1 else 'want'} "
        f"{say_count(about['slots'], 'slot')}, more than the ceilings allow"
    ),
    ReasonCode.HELD_FOR_MORE: lambda about: (
        f"{about['messages']} of {say_count(about['threshold'], 'message')}: "
        f"held until {_clock(about['until'])}"
    ),
    ReasonCode.CAN_WAIT: lambda about: (
        f"{say_count(about['jobs'], 'job')} can wait: held until {_clock(about['until'])}"
    ),
    ReasonCode.TO_STABLE: lambda about: (
        f"{say_count(about['jobs'], 'job')} {'wants' if about['jobs'] == 1 else 'want'} a machine "
        f"that stays: {_wasted_work(about)}"
    ),
    ReasonCode.TO_SPOT: lambda about: (
        f"{say_count(about['jobs'], 'job')} could move to spot, or to cheaper spot"
    ),
    ReasonCode.OFF_SPOT: lambda about: (
        f"{say_count(about['jobs'], 'job')} must leave spot to be done in time"
    ),
    ReasonCode.KEPT_WARM: lambda about: (
        f"{say_count(about['workers'], 'worker')} {_are(about['workers'])} kept warm"
    ),
    ReasonCode.CUT_BY_BOUND: lambda about: (
        f"{_inner(about)}; {about['bound']} leaves room for {about['allowed']} of {about['wanted']}"
    ),
    ReasonCode.WAIT_FOR_SPOT: "wait for spot",
    ReasonCode.TAKE_ANY: "take what there is",
    ReasonCode.ON_DEMAND_ONLY: "on demand only",
    ReasonCode.COST_PRICE: _dear("Price: a paid hour costs {now:.3f} USD instead of {before:.3f}."),
    ReasonCode.COST_BOOT: _dear(
        "Boot: an instance takes {now:.1f} minutes instead of {before:.1f} to take its first job."
    ),
    ReasonCode.COST_IDLE: _dear(
        "Idle: an instance idles {now:.1f} minutes instead of {before:.1f}."
    ),
    ReasonCode.COST_REDO: _dear(
        "Redo: {now:.0f} % of the computing repeats lost work instead of {before:.0f} %."
    ),
    ReasonCode.COST_THROUGHPUT: _dear(
        "Throughput: a paid hour of work does {now:,.0f} items instead of {before:,.0f}."
    ),
    ReasonCode.COST_SPARSE_QUEUE: _dear(
        "Sparse queue: a launch serves {now:,.0f} items instead of {before:,.0f}."
    ),
    ReasonCode.COST_OVERKILL: _dear(
        "Overkill: the GPU is used {gpu:.0f} % and its memory {vram:.0f} % while {offer} would do "
        "for {price:.3f} USD an hour."
    ),
    ReasonCode.CASE_LATENCY: _latency,
    ReasonCode.CASE_CONSTANT_LOAD: _constant_load,
    ReasonCode.CASE_SMALL_BILL: _small_bill,
    ReasonCode.CASE_LONG_ITEMS: _long_items,
    ReasonCode.CASE_NO_INTERRUPTION: _no_interruption,
    ReasonCode.MOST_ARE_STALE: "{stale} of {workers} workers are stale at once: none is ended",
    ReasonCode.STALE_NEXT_TICK: lambda about: (
        f"{say_count(about['stale'], 'more stale worker')} "
        f"{'waits' if about['stale'] == 1 else 'wait'} for the next tick"
    ),
    # A moment, not a length: the note of the next tick reads the same.
    ReasonCode.NOBODY_LISTENED: lambda about: (
        f"{about['silent']} silent, none ended yet: ticks have reached the ledger only since "
        f"{datetime.fromisoformat(str(about['since'])):%H:%M} UTC"
    ),
    ReasonCode.NOTHING_ON_SALE: "nothing is on sale in the zones where it may run",
    ReasonCode.LAST_RULED_OUT: lambda about: (
        f"no price is known of the {about['last']} that passed every earlier check, of "
        f"{say_count(about['offers'], 'offer')}"
        if about["constraint"] == "price"
        else f"of {say_count(about['offers'], 'offer')}, {about['constraint']} rules out the "
        f"{about['last']} that passed every earlier check"
    ),
    ReasonCode.REGION_LEFT_OUT: "the setting `regions` does not contain {region}",
    ReasonCode.BREAKER_OPEN: lambda about: f"launching is stopped: {_inner(about)}",
    ReasonCode.LAUNCH_VERSION_ON_TEST: lambda about: (
        f"{about['tested_by']} tests whether launches are of use again: {_inner(about)}"
    ),
    ReasonCode.SLOW_DOWN: "EC2 asked to slow down",
    ReasonCode.NO_REGION_READ: "the settings of no region can be read",
    ReasonCode.FAILED_TOO_OFTEN: lambda about: (
        "1 failure or loss in all"
        if about["failures"] == 1
        else f"{about['failures']} failures or losses in all"
    ),
    ReasonCode.FAILED_ON_SEVERAL: "{failures} failures or losses on {instances} instances",
    ReasonCode.NEVER_DONE: lambda about: (
        f"{_wasted_work(about)}; "
        + ("for a day no" if about.get("has_waited_in_vain") else "the policy allows no")
        + " stable machine"
        + (" could be had" if about.get("has_waited_in_vain") else "")
        + ": let it keep a checkpoint, or allow more on-demand"
    ),
    ReasonCode.OUTLIVES_WORKER: (
        "an attempt of a worker's whole life (max_lifetime is {hours:g} h) finished no item and "
        "saved no state: raise max_lifetime, or save state"
    ),
    ReasonCode.ITEM_TOO_LONG: (
        "attempts at one item have taken {hours:.1f} h, max_item_time is {most:g} h, and the job "
        "has cost ${dollars:.2f}: see in its log whether its checkpoints are of use"
    ),
    ReasonCode.OTHER_BODY: (
        "job {job} was first claimed with other items or params; send this under another id"
    ),
    ReasonCode.JOB_ID_REUSED: (
        "job {job}, which is {state}, had other items or params; send this under another id"
    ),
    ReasonCode.SENT_AFTER_CANCEL: (
        "job {job} was cancelled before this was sent; send it under another id"
    ),
    ReasonCode.BODY_NOT_STORED: (
        "nothing is stored under the digest that this message of job {job} names; submit it again"
    ),
    ReasonCode.WAITED_TOO_LONG: (
        "it has waited for {batch} for {days} days, as long as messages are kept, so it was "
        "cancelled: submit it again"
    ),
    ReasonCode.BEFORE_DID_NOT_SUCCEED: lambda about: (
        f"{about['batch']}, for which it waited, "
        f"{'has' if about['end'] == 'failed' else 'is'} {about['end']}"
    ),
    ReasonCode.NOT_OVER: (
        "it is not over after {days} days, and nobody will be told of its end: see "
        "`spindown status` of it"
    ),
    ReasonCode.TO_BE_ROUTED: lambda about: (
        f"{say_count(about['messages'], 'message')} {_are(about['messages'])} to be routed by type"
    ),
    ReasonCode.NO_TYPES: (
        "the message has {field}, and its workload declares no types: add `policy.types` to the "
        "workload in spindown.toml and deploy, or leave {field} out"
    ),
    ReasonCode.TYPE_UNKNOWN: "the workload declares no type {type}: name one of {known}",
    ReasonCode.REQUIREMENT_FORBIDDEN: lambda about: (
        (
            f"architectures is {about['asked']}, and allowed is {about['most']}: ask for that"
            if about["field"] == "architectures"
            else _too_much(about)
        )
        + (
            f", or change {about['setting']} of the workload in spindown.toml and deploy"
            if about.get("setting")
            else ""
        )
    ),
    ReasonCode.NO_SUCH_SIZE: _no_such_size,
    ReasonCode.SIZE_LOWERED: _size_learned,
    ReasonCode.SIZE_RAISED: _size_learned,
    ReasonCode.SIZE_BACK_FAILURES: _size_back_failures,
    ReasonCode.SIZE_BACK_COST: _size_back_cost,
    ReasonCode.SIZE_RAN_OUT: _size_ran_out,
    ReasonCode.SIZE_OF_HOUR: _size_of_hour,
    ReasonCode.CORES_FEWER: _cores_cheaper,
    ReasonCode.CORES_MORE: _cores_cheaper,
    ReasonCode.CORES_FEWER_TRIED: _cores_tried,
    ReasonCode.CORES_MORE_TRIED: _cores_tried,
    ReasonCode.POOL_INTERRUPTED: "interrupted",
    ReasonCode.POOL_REFUSED: "{refusal}",
    ReasonCode.POOL_FORBIDDEN: "{refusal}",
    ReasonCode.POOL_NEVER_CHECKED_IN: _pool_never_checked_in,
    ReasonCode.ACCOUNT_REFUSED: lambda about: (
        f"{about['refusal']}: {about['message']}"
        + (f" (asked for {about['types']})" if about.get("types") else "")
    ),
    ReasonCode.STRIKES_SILENT: _strikes("never checked in", _LOOK),
    ReasonCode.STRIKES_UNCLAIMED: _strikes(
        "checked in and ended without a job although messages waited", _LOOK
    ),
    ReasonCode.STRIKES_FAILED: _strikes(
        "ended since all their last jobs had failed",
        "see why in its log, then deploy fixed code or take out the jobs that fail",
    ),
    ReasonCode.STRIKES_OF_MESSAGES: (
        "{count} instances in a row found only jobs that they could not do, the last one"
        " {instance_id}, although others were done of late: one instance is launched every 5 min"
    ),
    ReasonCode.NO_ANSWER: _failed("no answer"),
    ReasonCode.GRANT_MISSING: _failed("a permission is missing"),
    ReasonCode.CALL_THROTTLED: _failed("too many calls"),
    ReasonCode.CALL_FAILED: _failed("it failed"),
    ReasonCode.MAX_WORKERS: _max_workers,
    ReasonCode.PRICES_UNREAD: "prices could not be read: {said}",
    ReasonCode.BUDGET_USED_UP: (
        "the budget of {budget_per_month:g} USD a month is spent or set aside; a launch would set "
        "aside {least:.2f} USD"
    ),
    ReasonCode.BUDGET_TOO_LOW: (
        "{left:.2f} USD are left of the budget of {budget_per_month:g} USD a month, and a launch "
        "sets aside {least:.2f} USD at least"
    ),
    ReasonCode.BUDGET_BELOW_LAUNCH: (
        "a launch sets aside {least:.2f} USD at least, which is more than the whole budget of "
        "{budget_per_month:g} USD a month: nothing is launched until a cheaper offer comes, or you "
        "raise budget_per_month"
    ),
    ReasonCode.FLEET_AT_CEILING: (
        "the workload costs {dollars_per_hour:.2f} of {max_dollars_per_hour:g} USD/h"
    ),
    ReasonCode.MONTH_UNREADABLE: (
        "{row} cannot be read, so no launch can reserve money in it: `spindown doctor` prints the "
        "command that repairs it"
    ),
    ReasonCode.LOCK_DAMAGED: "the row of the tick's lock is damaged and taken as free",
    ReasonCode.QUEUE_MISSING: (
        "the queue {url} is not there: nothing is launched, and what runs is charged and ended"
    ),
    ReasonCode.ROWS_FLOODED: (
        "workers have written rows that nobody reads, {rows} of them or more: they are removed bit "
        "by bit"
    ),
    ReasonCode.LEDGER_BUSY: "the ledger was busy, the next tick continues",
    ReasonCode.CALLS_USED_UP: (
        "EC2 has been asked {calls} times this minute; the next tick continues"
    ),
    ReasonCode.TRIES_USED_UP: lambda about: (
        f"{say_count(about['requests'], 'request')} {_were(about['requests'])} made, "
        "the next tick continues"
    ),
    ReasonCode.TIME_IS_UP: "time is up, the next tick continues",
    ReasonCode.LAUNCH_UNANSWERED: (
        "EC2 gave no answer ({said}); the next tick finds out what became of it"
    ),
    ReasonCode.REGION_UNREAD: "{region} is left out: {said}",
    ReasonCode.ANSWER_DOUBTED: lambda about: (
        f"EC2's answer in {about['region']} missed "
        f"{say_count(about['workers'], 'worker')} that the ledger hears: none of them is ended"
    ),
    ReasonCode.LAUNCH_WAITS: "launch {launch_id} waits: EC2 asked to slow down",
    ReasonCode.REPLAY_REFUSED: "launch {launch_id}: asked again, answered {codes}",
    ReasonCode.WORKER_OVERDUE: "{instance_id} is busy past its lifetime: it is ended soon",
    ReasonCode.JOBS_LEFT_BEHIND: lambda about: (
        f"{say_count(about['jobs'], 'job')} to be done by others"
    ),
    ReasonCode.NEWER_MESSAGES: lambda about: (
        f"{say_count(about['messages'], 'message')} of a later version hidden: {about['field']} is "
        f"{about['schema']}, and what is deployed reads {about['reads']}"
    ),
    ReasonCode.REGIONS_SILENT: "a launch had no answer in {regions}: other regions are asked first",
    ReasonCode.TRAITS_ASKED_LAST: "instances of {traits} were of no use: others are asked first",
    ReasonCode.IMAGE_NOT_BAKED: "instances install at their start: no image is baked yet",
    ReasonCode.IMAGE_STALE: (
        "instances install at their start: the baked image holds other requirements or another kit"
    ),
    ReasonCode.IMAGE_OLD: (
        "instances install at their start: the baked image is {days} days old, and its base lacks "
        "later fixes"
    ),
    ReasonCode.IMAGE_ELSEWHERE: (
        "instances install at their start in {region}, where the baked image is not"
    ),
    ReasonCode.IMAGE_SILENT: lambda about: (
        f"instances install at their start: {say_count(about['count'], 'instance')} of the baked "
        f"image {about['image']} in a row never checked in"
    ),
    ReasonCode.IMAGE_REFUSED: (
        "instances install at their start: EC2 refuses the baked image {image}: {refusal}"
    ),
    ReasonCode.IMAGE_BUILD_FAILED: (
        "instances install at their start: the last build of their image ended as {state}: {said}"
    ),
    ReasonCode.IMAGE_USED: "instances start from the baked image {image}",
    ReasonCode.IMAGE_MODES: (
        "a month of {boots:.0f} boots: ${bootstrap:,.2f} for installs with image.mode bootstrap, "
        "${bake:,.2f} with bake, ${auto:,.2f} with auto, ${ami:,.2f} with an image of your own "
        "(making and storing it not counted)"
    ),
    ReasonCode.NO_QUOTA_LEFT: (
        "quota {quota_class}: {left:g} vCPUs are left, the smallest offer takes {smallest}"
    ),
    ReasonCode.QUOTA_GIVEN_BACK_SOON: (
        "quota {quota_class} is full while one of ours is ending: tried again soon"
    ),
    ReasonCode.LADDER_OPENED_EARLY: (
        "a later launch would break start_within: every rung of the price ladder is open"
    ),
    ReasonCode.CATALOGUE_OLD: lambda about: (
        f"part of the catalogue of offers was last read at {_moment(about['read_at'])}"
    ),
    ReasonCode.ON_DEMAND_PRICES_OLD: lambda about: (
        f"on-demand prices of {about['region']} were last read at {_moment(about['read_at'])}: "
        "they are not trusted"
    ),
    ReasonCode.SPOT_PRICES_OLD: lambda about: (
        f"spot prices of {about['region']} were last read at {_moment(about['read_at'])}: "
        f"{about['said']}"
    ),
    ReasonCode.SPOT_PRICES_ESTIMATED: (
        "spot prices of {region} are estimated from on-demand: {said}"
    ),
    ReasonCode.SPOT_PRICES_UNKNOWN: (
        "nothing is bought as spot in {region}, its prices are unknown: {said}"
    ),
    ReasonCode.PRICING_APPLIED: lambda about: (
        f"prices are those of [pricing]: {say_count(about['discounts'], 'discount')}; "
        f"{about['left']} of {say_count(about['paid'], 'machine')} already paid for can be launched"
    ),
    ReasonCode.PAID_UNMATCHED: (
        "no offer of {workload} is {machines}: correct [[pricing.paid]], or widen the requirements"
    ),
    ReasonCode.NEAREST_OFFER: _nearest,
    ReasonCode.WRITES_LOST: lambda about: (
        f"{say_count(about['writes'], 'write')} lost a race; the next tick looks again"
    ),
    ReasonCode.DECISION_UNSTORED: "the whole decision was not stored: {said}",
    ReasonCode.BUDGET_ENDS_WORKER: (
        "{spent:.2f} of {budget_per_month:g} USD of the month are spent, and the rest is set aside "
        "or too little"
    ),
    ReasonCode.SURPLUS_WORKER: lambda about: (
        f"max_workers is {about['max_workers']}, and there "
        f"{'is' if about['workers'] == 1 else 'are'} {say_count(about['workers'], 'worker')}"
    ),
    ReasonCode.SURPLUS_DOLLARS: (
        "the workload costs {dollars_per_hour:.2f} USD an hour, and max_dollars_per_hour is "
        "{max_dollars_per_hour:g}"
    ),
    ReasonCode.TOO_DEAR_BY_NOW: (
        "it costs {price_per_hour:.3f} USD an hour by now, more than the policy allows"
    ),
    ReasonCode.JOBS_MOVE: "its jobs go to a worker on {to}",
    ReasonCode.NOTHING_ON_DEMAND: lambda about: (
        f"{say_count(about['jobs'], 'job')} must leave spot to be done in time, and nothing on "
        "demand is to be had"
    ),
}

#: What to do about an item that costs more than it used to.
_REMEDIES: Mapping[ReasonCode, str] = {
    ReasonCode.COST_PRICE: (
        "lower `max_price_per_hour`, or let work wait longer on the first rung of the `ladder`."
    ),
    ReasonCode.COST_BOOT: (
        'set `mode` of the image to "bake", so that `requirements` are installed beforehand, or '
        "shorten setup."
    ),
    ReasonCode.COST_IDLE: 'set `idle_timeout` to "auto", or make it shorter.',
    ReasonCode.COST_REDO: "shorten `checkpoint_interval`, or raise `min_reliability`.",
    ReasonCode.COST_THROUGHPUT: (
        "check whether items became larger or a new version of your code is slower; a larger "
        "`batch_size` may help."
    ),
    ReasonCode.COST_SPARSE_QUEUE: (
        "raise `start_within`, so that work gathers before an instance starts, and leave "
        "`scale_up_threshold` out."
    ),
    ReasonCode.COST_OVERKILL: (
        "lower `gpu_memory_gib_min`, or widen `gpu_names`; `spindown rightsize` says how far."
    ),
}

#: Cases in which Spindown may be the wrong thing to use.
_CASES: Mapping[ReasonCode, str] = {
    ReasonCode.CASE_LATENCY: "latency-critical work",
    ReasonCode.CASE_CONSTANT_LOAD: "constant load",
    ReasonCode.CASE_SMALL_BILL: "too small a bill",
    ReasonCode.CASE_LONG_ITEMS: "long items without a checkpoint",
    ReasonCode.CASE_NO_INTERRUPTION: "work that bears no interruption",
}
