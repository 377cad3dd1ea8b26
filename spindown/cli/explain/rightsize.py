"""``spindown rightsize``: whether the requirements ask for more machine than the jobs use."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table

from spindown import config as configuration
from spindown.cli import option
from spindown.cli.render.line import told_if_slow
from spindown.cli.render.saving import AT_WORK, PAID, format_item_cost, say_usd
from spindown.cli.render.screen import format_seconds, print_parts
from spindown.cli.render.table import make_table
from spindown.cli.session import open_session
from spindown.contract.codec import encode
from spindown.domain.dispatch_cost import cheaper_dispatch
from spindown.domain.policy import JobNeeds, Rightsize
from spindown.domain.ranking import Candidate
from spindown.domain.reason import About, Reason, ReasonCode
from spindown.domain.rightsizing.type_size import TRIAL_JOBS, are_few
from spindown.domain.rightsizing.workload_size import Extent, RequirementAdvice, RequirementKey
from spindown.installed import require
from spindown.operate import rightsize as sizing
from spindown.operate.rightsize import Rightsizing, TypeSizing
from spindown.reason_text import say, say_count, say_days, say_number


def rightsize(
    workload: option.Workload,
    *,
    days: Annotated[int, typer.Option(min=1, max=90, help="Days of history that count.")] = 14,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Hold what is required against what the jobs have used. Changes nothing."""
    require("usage")
    with told_if_slow(local=local):
        session = open_session(config, deployment=deployment, local=local)
        session.workload(workload)
        found = sizing.rightsize(workload, session.control_ports(), days=days)
    if as_json:
        print(json.dumps(rightsizing_to_json(found)))
        return
    loaded = None if deployment is not None else configuration.load(config)
    print_parts(render_rightsizing(found, loaded.function_file(workload) if loaded else None))


def render_rightsizing(
    found: Rightsizing, function_file: Path | None = None
) -> Iterator[RenderableType]:
    """Yield what a person reads: what was used, what is enough, and what that would save.

    Args:
        found: what was found.
        function_file: the file of the function that the workload is; None: it is none.
    """
    yield _headline(found)
    if found.jobs:
        columns = ", and a month" if found.sizings else ""
        yield f"USD at work{columns}: {AT_WORK}; the bill counts {PAID}."
    if found.sizings:
        yield _types_table(found.sizings)
        yield _say_mode(found)
        yield from (
            f"{_type_name(each)}: a job has used {say_number(each.used.memory_gib or 0.0)} GiB, "
            "more than "
            f"the {say_number(each.asked.memory_gib or 0.0)} GiB that it asks for"
            for each in found.sizings
            if each.is_short
        )
        in_force = "" if found.mode is Rightsize.APPLY else "only advised: "
        yield from (
            f"{_type_name(each)}: {told}"
            for each in found.sizings
            for told in (
                *map(say, each.reasons),
                *(f"{in_force}{say(reason)}" for reason in _hour_reasons(each)),
            )
        )
    yield from _say_few(found)
    yield from _say_dispatches(found)
    advice = found.advice
    if advice is None:
        if found.jobs and not found.sizings:
            yield "Nothing was seen of what they used; workers log why (usage_not_sampled)."
        return
    yield _table(advice)
    if advice.gpu_mean is not None and advice.vram_share_max is not None:
        gpu, vram = advice.gpu_mean, advice.vram_share_max
        little = ", so that another GPU may do" if advice.uses_little_gpu else ""
        yield f"GPUs computed {gpu:.0f} % of the time, with {vram:.0f} % of their memory{little}."
    yield from _say_advice(found, advice, function_file)


def _say_few(found: Rightsizing) -> Iterator[str]:
    """Yield of what there are too few jobs for advice, and of what there is none yet."""
    typed = [(each.name, each.jobs) for each in found.sizings if each.is_declared]
    counts = typed if found.sizings else [(found.workload, found.jobs)]
    for name, jobs in counts:
        if jobs and are_few(jobs):
            yield f"{name}: {say_count(jobs, 'job')} so far, too few to go by: {TRIAL_JOBS:g} tell"
    is_off = found.mode is Rightsize.OFF
    for each in () if is_off else found.sizings:
        if each.asked != JobNeeds() and each.advised == JobNeeds() and not are_few(each.jobs):
            yield f"{_type_name(each)}: nothing is advised yet: the hourly function decides"


def _say_dispatches(found: Rightsizing) -> Iterator[str]:
    """Yield what each way to dispatch these jobs would have cost."""
    compared = [
        (_type_name(each), each.dispatch, each.dispatches, each.jobs) for each in found.sizings
    ]
    whole = (found.workload, found.dispatch, found.dispatches, found.jobs)
    for name, dispatch, costs, jobs in compared or [whole]:
        if not costs:
            continue
        costs_text = ", ".join(f"{each.dispatch} ${say_usd(each.dollars)}" for each in costs)
        best = cheaper_dispatch(costs, dispatch, jobs=jobs)
        advice = f'; dispatch = "{best}" would have cost least' if best else ""
        paid = f"the machines of {say_days(found.days)} would have cost at list prices"
        yield f"{name}: as {dispatch} now; {paid} {costs_text}{advice}."


#: What ``rightsize`` of the policy makes of what the table says.
_MODES = {
    Rightsize.OFF: (
        "nothing is learned any more, and jobs get what is asked for; what is advised was learned "
        "before"
    ),
    Rightsize.ADVISE: "what is advised is only told, and jobs get what is asked for",
    Rightsize.APPLY: "new jobs get what is given, which moves step by step to what is advised",
}


def _say_mode(found: Rightsizing) -> str:
    """Return what becomes of what is learned of each type."""
    learned = ", ".join(each.name for each in found.sizings if each.is_declared)
    others = ", ".join(_type_name(each) for each in found.sizings if not each.is_declared)
    said = f'rightsize is "{found.mode}" for {learned}: {_MODES[found.mode]}.'
    return f"{said} Of {others} nothing is learned." if others else said


def _type_name(of: TypeSizing) -> str:
    if not of.name:
        return "(no type)"
    return of.name if of.is_declared else f"{of.name} (not declared)"


def _headline(found: Rightsizing) -> str:
    days = say_days(found.days)
    if not found.jobs:
        return (
            f"{found.workload}: no job has left a record in {days}; workers write them at their end"
            " and every five minutes."
        )
    held = format_seconds(timedelta(seconds=found.seconds))
    return (
        f"{found.workload}: {say_count(found.jobs, 'job')} in {days}, {held} on"
        f" {', '.join(found.types)}, ${say_usd(found.dollars)} at work"
    )


def _types_table(types: Sequence[TypeSizing]) -> Table:
    """Return for each type what it asks for, uses and gets, and what would be enough."""
    numbers = ("jobs", "asked", "used", "given", "advised", "$/month", "as asked", "as advised")
    table = make_table("type", numbers=numbers)
    for each in types:
        used = replace(each.used, vcpus=None)
        table.add_row(
            _type_name(each),
            f"{each.jobs:,}",
            _say_needs(each.asked),
            _say_needs(used, cores=each.cores),
            _say_needs(each.given),
            _say_needs(each.advised),
            *map(_say_dollars, (each.dollars, each.dollars_asked, each.dollars_advised)),
        )
    return table


def _say_needs(needs: JobNeeds, *, cores: float | None = None) -> str:
    count = cores if needs.vcpus is None else needs.vcpus
    parts = [
        "" if count is None else f"{say_number(count)} vCPU",
        "" if needs.memory_gib is None else f"{say_number(needs.memory_gib)} GiB",
        "" if needs.gpus is None else f"{needs.gpus} GPU",
        "" if needs.gpu_memory_gib is None else f"{say_number(needs.gpu_memory_gib)} GiB VRAM",
    ]
    return ", ".join(filter(None, parts)) or "-"


def _say_dollars(dollars: float | None) -> str:
    return "-" if dollars is None else say_usd(dollars)


def _hour_reasons(of: TypeSizing) -> Iterator[Reason]:
    for hour, size in sorted(of.hours.items()):
        before = of.given.memory_gib or 0
        about: About = {"need": "memory_gib", "size": size, "before": before, "hour": hour}
        yield Reason(ReasonCode.SIZE_OF_HOUR, about)


def _table(advice: RequirementAdvice) -> Table:
    table = make_table("requirement", numbers=("asked", "used at most", "on average", "enough"))
    for extent in advice.extents:
        unit = "" if extent.key is RequirementKey.VCPUS else " GiB"
        numbers = (extent.asked, extent.most, extent.mean, extent.enough)
        table.add_row(
            extent.key, *(f"{say_number(number, 4)}{unit}" for number in numbers), _remark(extent)
        )
    return table


def _remark(extent: Extent) -> str:
    if extent.is_close:
        return "a job came close to running out"
    return "less will do" if extent.advised is not None else ""


def _say_advice(
    found: Rightsizing, advice: RequirementAdvice, function_file: Path | None
) -> Iterator[str]:
    lines = [
        f"{extent.key} = {extent.advised}"
        if function_file is None
        else f"{extent.key.removesuffix('_min')}={extent.advised},"
        for extent in advice.extents
        if extent.advised is not None
    ]
    if not lines and found.now == found.then:
        fits = "what is required fits what was used"
        few = f"So far {fits}."
        yield few if found.jobs < TRIAL_JOBS else f"{fits.capitalize()}: nothing to change."
        return
    yield _compare(found)
    if lines:
        table = (
            f"[workload.{found.workload}.requirements]"
            if function_file is None
            else f"@spindown.function of {function_file}"
        )
        yield f"To ask for what is enough, in {table}; then deploy:"
        yield from (f"    {line}" for line in lines)
    if advice.uses_little_gpu:
        names, there = (
            ("gpu_names and instance_types", "they are there")
            if function_file is None
            else ("gpu", "it is there")
        )
        yield f"and take out {names}, if {there}."


def _compare(found: Rightsizing) -> str:
    now, then = found.now, found.then
    if now is None or then is None:
        return "No offer may be taken now, so that no saving can be told."
    if then.offer == now.offer:
        return f"{_name(now)} stays the best; others could stand in for it when it is dry."
    share = 1.0 - then.cost_per_item / now.cost_per_item
    expected = "" if then.measured else " (expected, not measured)"
    word = "less" if share > 0.0 else "more"
    return f"What has enough is {_name(then)}{expected}, {abs(share):.0%} {word} than {_name(now)}."


def _name(candidate: Candidate) -> str:
    return f"{candidate.offer} at {format_item_cost(candidate.cost_per_item)}"


def rightsizing_to_json(found: Rightsizing) -> dict[str, Any]:
    """Return it for programs."""
    advice = found.advice
    extents = [
        {**encode(extent), "advised": extent.advised}
        for extent in (advice.extents if advice else ())
    ]
    return {
        "workload": found.workload,
        "at": encode(found.at),
        "days": found.days,
        "jobs": found.jobs,
        "seconds": found.seconds,
        "dollars": found.dollars,
        "types": list(found.types),
        "extents": extents,
        "gpu_mean": advice.gpu_mean if advice else None,
        "vram_share_max": advice.vram_share_max if advice else None,
        "uses_little_gpu": advice.uses_little_gpu if advice else None,
        "now": encode(found.now) if found.now else None,
        "then": encode(found.then) if found.then else None,
        "saving": found.saving,
        "sizings": encode(found.sizings),
        "mode": found.mode.value,
        "dispatch": found.dispatch.value,
        "dispatches": encode(found.dispatches),
    }
