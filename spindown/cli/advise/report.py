"""What ``spindown advise`` prints: the cheapest settings, and when not to use Spindown."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spindown.cli.advise.advice import (
    Advice,
    Idle,
    advise,
    boots_to_json,
    postponed_to_json,
    say_boots,
    say_postponed,
    undone,
)
from spindown.cli.advise.search import LEAST_GAIN, AdvisedSettings, Trial, keeps_promise
from spindown.cli.history.gather import Gathered, gather
from spindown.cli.history.option import SimulationOptions
from spindown.cli.option import GIVEN
from spindown.cli.render.screen import format_wait, open_console
from spindown.cli.render.table import make_table
from spindown.cli.simulate.alternative import Alternative, Simulations, progress_of
from spindown.cli.simulate.table import ceiling_sentence, format_days
from spindown.config import format_duration, parse_duration
from spindown.config.schema import NONE_IS
from spindown.domain.advice import Answer, Verdict
from spindown.domain.policy import Policy
from spindown.error import BadInput
from spindown.reason_text import say, say_case, say_count, say_number
from spindown.simulator import SimResult

#: Policy keys that may be advised; they can be changed live.
_LIVE_KEYS = (
    "max_workers",
    "start_within",
    "scale_up_threshold",
    "drain_within",
    "idle_timeout",
    "max_price_per_hour",
)
_COLOURS = {Answer.YES: "bold yellow", Answer.NO: "green", Answer.JUDGE: "cyan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingLine:
    """One setting: now, advised, and why."""

    key: str
    now: str
    advised: str
    why: str = ""


def render_advice(advice: Advice) -> RenderableType:
    """Return the advice as tables and sentences."""
    return Group(
        *_inputs(advice),
        Text(),
        *_outcome(advice),
        Text(),
        _table(advice),
        Text(),
        *_how_to_apply(advice),
        *_long_jobs(advice),
        *_boots(advice),
        *_verdicts(advice),
    )


def _inputs(advice: Advice) -> Iterator[Text]:
    gathered, result = advice.gathered, advice.present.result
    span = format_days(gathered.traffic.length)
    yield Text(
        f"{say_count(result.jobs, 'job')}, {say_count(result.items, 'item')} in {span}: "
        f"{gathered.traffic.source}; "
        f"prices: {gathered.prices.source}."
    )
    for note in gathered.notes:
        yield Text(f"Assumed: {note}.", style="dim")
    within, source = format_wait(advice.promise), advice.promise_source
    yield Text(f"Promise: 95 % of jobs start within {within}, {source}.")


def _outcome(advice: Advice) -> Iterator[Text]:
    yield _sum("Now", advice.present, advice)
    if said := ceiling_sentence(advice.present.result, advice.present.settings.policy):
        yield Text(said, style="yellow")
    if advice.best == advice.present:
        if keeps_promise(advice.present.result, advice.promise):
            said = "Nothing that was tried costs at least 1 % less within the promise."
        elif undone(advice.present.result):
            overtime = format_days(advice.gathered.scenario.overtime)
            said = (
                f"Nothing that was tried does all of the work until {overtime} after the traffic; "
                "see max_workers, max_price_per_hour, max_dollars_per_hour and the budget."
            )
        else:
            said = "Nothing that was tried keeps the promise; see warm_workers and max_workers."
        yield Text(f"{said} ({advice.simulations} simulations)")
        return
    yield _sum("Advised", advice.best, advice)
    saving = advice.saving_a_month
    if saving is None:
        words = "does all of the work, and keeps the promise"
    elif saving >= 0.0:
        share = saving / max(advice.a_month(advice.present), 1e-9)
        words = f"saves ${saving:,.2f} a month, {share:.0%}"
    else:
        words = f"costs ${-saving:,.2f} a month more, and keeps the promise"
    yield Text(f"That {words}, found in {advice.simulations} simulations.", style="bold green")
    yield from _again(advice)


def _again(advice: Advice) -> Iterator[Text]:
    saving = advice.saving_again
    if saving is None or advice.again is None:
        return
    said = f"With seed {advice.gathered.seed + 1} the same change saves"
    if saving < LEAST_GAIN * advice.again[0] / advice.months:
        chance = "what was found may be chance, and more --days would show it"
        yield Text(f"{said} nothing: {chance}.", style="yellow")
    else:
        yield Text(f"{said} ${saving:,.2f} a month.")


def _sum(name: str, trial: Trial, advice: Advice) -> Text:
    result = trial.result
    parts = [f"${advice.a_month(trial):,.2f} a month"]
    if result.items_done:
        parts.append(f"${say_number(result.dollars_per_item * 1000, 4)} for 1,000 items, all in")
    if result.has_started:
        parts.append(f"95 % start within {format_wait(result.wait.p95)}")
    if left := undone(result):
        parts.append(f"{left:,} of {say_count(result.jobs, 'job')} left undone")
    return Text(f"{name:<8}{', '.join(parts)}")


def settings_lines(advice: Advice) -> list[SettingLine]:
    """Return every setting that was examined."""
    now, best = advice.present.settings, advice.best.settings
    told = {key: (_spell_key(now.policy, key), _spell_key(best.policy, key)) for key in _LIVE_KEYS}
    told["idle_timeout"] = (
        _spell_idle(now, advice.present_idle),
        _spell_idle(best, advice.best_idle),
    )
    told["families_denied"] = _spell_families(now), _spell_families(best)
    why = {
        "scale_up_threshold": _say_threshold(best.policy),
        "idle_timeout": _say_gaps(best, advice),
        "families_denied": f"launched: {_say_types(advice.best)}",
    }
    return [
        SettingLine(key=key, now=before, advised=after, why=why.get(key, ""))
        for key, (before, after) in told.items()
    ]


def _table(advice: Advice) -> Table:
    table = make_table("setting", "now", "advised", "")
    for line in settings_lines(advice):
        style = "bold" if line.now != line.advised else ""
        table.add_row(line.key, line.now, line.advised, Text(line.why, style="dim"), style=style)
    return table


def policy_command(advice: Advice) -> str:
    """Return the command that puts the advised policy into force; "": nothing to change."""
    now, best = advice.present.settings.policy, advice.best.settings.policy
    changes = []
    for key in _LIVE_KEYS:
        value = getattr(best, key)
        if value != getattr(now, key):
            changes.append(f"{key}={_spell_key(best, key)}")
    if not changes:
        return ""
    name = advice.gathered.subject.workload
    return f"spindown policy set {name} {' '.join(changes)}{GIVEN.get()}"


def families_line(advice: Advice) -> str:
    """Return the line of spindown.toml for the advised families; "": nothing to change."""
    now, best = advice.present.settings, advice.best.settings
    if now.families_denied == best.families_denied:
        return ""
    names = ", ".join(f'"{family}"' for family in sorted(best.families_denied))
    return f"families_denied = [{names}]"


def _how_to_apply(advice: Advice) -> Iterator[RenderableType]:
    command, families = policy_command(advice), families_line(advice)
    if command:
        yield Text("Apply it now, without a deploy:")
        # On one line, so that it can be copied.
        yield Text(f"    {command}", style="bold", no_wrap=True, overflow="ignore")
    if families:
        table = f"[workload.{advice.gathered.subject.workload}.requirements]"
        yield Text(f"And in spindown.toml, below {table}, with the next deploy:")
        yield Text(f"    {families}", style="bold", no_wrap=True, overflow="ignore")
    if not command and not families:
        yield Text("There is nothing to apply.")


def _long_jobs(advice: Advice) -> Iterator[RenderableType]:
    if advice.postponed is not None:
        said = say_postponed(advice.postponed, advice.best.settings.policy, advice.months)
        yield Text()
        yield Text("If jobs may be done later", style="bold")
        yield Padding(Text(said), (0, 0, 0, 4), expand=False)


def _boots(advice: Advice) -> Iterator[RenderableType]:
    """Yield what is known once machines have run: boots, and who compares ways to dispatch."""
    if (boot := advice.boot) is not None:
        yield Text()
        yield Text("What machines have shown", style="bold")
        yield Padding(Text(say_boots(boot, advice)), (0, 0, 0, 4), expand=False)
        command = f"`spindown rightsize {advice.gathered.subject.workload}`"
        dispatch = f"Which `dispatch` would have cost least: {command} compares them."
        yield Padding(Text(dispatch), (0, 0, 0, 4), expand=False)


def _verdicts(advice: Advice) -> Iterator[RenderableType]:
    if not advice.verdicts:
        return
    yield Text()
    yield Text("When not to use this", style="bold")
    for verdict in advice.verdicts:
        head = Text(f"{say_case(verdict.reason.code)}: ")
        yield head.append(verdict.answer.value, style=_COLOURS[verdict.answer])
        yield Padding(Text(say(verdict.reason)), (0, 0, 0, 4), expand=False)


def _spell(value: object) -> str:
    # A whole number stays whole: a million is not 1e+06 messages.
    return format_duration(value) if isinstance(value, timedelta) else f"{value:.10g}"


def _spell_key(policy: Policy, key: str) -> str:
    value = getattr(policy, key)
    return NONE_IS[key] if value is None else _spell(value)


def _say_threshold(policy: Policy) -> str:
    gathers = policy.scale_up_threshold is None
    return "work gathers before machines are launched" if gathers else ""


def _spell_idle(settings: AdvisedSettings, idle: Idle) -> str:
    covered = f" ({idle.gaps.share:.0%} of gaps)" if idle.gaps.gaps else ""
    return _spell_key(settings.policy, "idle_timeout") + covered


def _spell_families(settings: AdvisedSettings) -> str:
    return ", ".join(sorted(settings.families_denied)) or "none"


def _say_gaps(settings: AdvisedSettings, advice: Advice) -> str:
    found = advice.best_idle.gaps
    if not found.gaps:
        return "there was no gap in the work"
    learned = ""
    if settings.policy.idle_timeout is None:
        learned = f"learns about {format_duration(advice.best_idle.timeout)}; "
    return f"{learned}covers {found.covered:,} of {found.gaps:,} gaps"


def _say_types(trial: Trial) -> str:
    counts = sorted(trial.result.types.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{count:,} x {name}" for name, count in counts[:4]) or "nothing"


def advice_to_json(advice: Advice) -> dict[str, Any]:
    """Return an advice for programs."""
    postponed, boot = advice.postponed, advice.boot
    return {
        "workload": advice.gathered.subject.workload,
        "arrivals": advice.gathered.traffic.source,
        "prices": advice.gathered.prices.source,
        "seconds": advice.gathered.traffic.length,
        "seed": advice.gathered.seed,
        "assumed": list(advice.gathered.notes),
        "promise_seconds": advice.promise,
        "now": _trial_to_json(advice.present, advice.present_idle, advice),
        "advised": _trial_to_json(advice.best, advice.best_idle, advice),
        "saving_a_month": advice.saving_a_month,
        "saving_a_month_again": advice.saving_again,
        "command": policy_command(advice),
        "families": families_line(advice),
        "long_jobs": postponed and postponed_to_json(postponed, advice.months),
        "boot": boot and boots_to_json(boot, advice),
        "when_not": [_verdict_to_json(verdict) for verdict in advice.verdicts],
        "simulations": advice.simulations,
    }


def _trial_to_json(trial: Trial, idle: Idle, advice: Advice) -> dict[str, Any]:
    policy, result = trial.settings.policy, trial.result
    return {
        "settings": {
            "max_workers": policy.max_workers,
            "start_within": _spell(policy.start_within),
            "scale_up_threshold": policy.scale_up_threshold,
            "drain_within": _spell(policy.drain_within),
            "idle_timeout": _spell_key(policy, "idle_timeout"),
            "max_price_per_hour": policy.max_price_per_hour,
            "families_denied": sorted(trial.settings.families_denied),
        },
        "dollars_a_month": advice.a_month(trial),
        # JSON has no infinity.
        "dollars_per_item": result.dollars_per_item if result.items_done else None,
        "wait_p50_seconds": result.wait.p50 if result.has_started else None,
        "wait_p95_seconds": result.wait.p95 if result.has_started else None,
        "jobs_undone": undone(result),
        "keeps_promise": keeps_promise(result, advice.promise),
        "idle_seconds": idle.timeout.total_seconds(),
        "gaps": idle.gaps.gaps,
        "gaps_covered": idle.gaps.covered,
        "types": dict(result.types),
    }


def _verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict; JSON has no infinity, so a break-even that is never reached is null."""
    tips = verdict.break_even if math.isfinite(verdict.break_even) else None
    return {
        "case": say_case(verdict.reason.code),
        "answer": verdict.answer.value,
        "break_even": tips,
        "sentence": say(verdict.reason),
    }


def run(
    options: SimulationOptions, within: str | None, *, processes: int | None, as_json: bool
) -> None:
    """Search what was asked for the cheapest settings, and print them."""
    promise = None if within is None else _seconds(within)
    advice = _advise(gather(options), promise, processes)
    if as_json:
        print(json.dumps(advice_to_json(advice)))
    else:
        # The command to copy must not be broken over two lines.
        open_console().print(render_advice(advice), crop=False)


def _advise(gathered: Gathered, promise: float | None, processes: int | None) -> Advice:
    processes = processes or os.cpu_count() or 1

    def simulate(
        simulations: Simulations, asked: Sequence[Alternative], likely: Iterable[Alternative]
    ) -> Sequence[SimResult]:
        with progress_of(asked) as report:
            return simulations.run(asked, report, likely)

    def again(asked: Sequence[Alternative], likely: Iterable[Alternative]) -> Sequence[SimResult]:
        with Simulations(scenario, seed=gathered.seed + 1, processes=processes) as simulations:
            return simulate(simulations, asked, likely)

    scenario = gathered.scenario
    with Simulations(scenario, seed=gathered.seed, processes=processes) as simulations:
        return advise(gathered, promise, partial(simulate, simulations), again)


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as exc:
        raise BadInput("--within", text, str(exc)) from exc
    if seconds <= 0.0:
        raise BadInput("--within", text, "make it longer than zero")
    return seconds
