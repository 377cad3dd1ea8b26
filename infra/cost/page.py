"""The estimate as a page of Markdown."""

from collections.abc import Iterator, Sequence

from infra.cost.estimate import Charge, Estimate
from infra.cost.idle import HOURS_A_MONTH, JUDGEMENT, REFRESH, TICK
from infra.cost.price import AS_OF, PRICES, Usage


def render(estimate: Estimate, *, workloads: Sequence[str]) -> str:
    """Return the page."""
    return "\n".join(
        [
            *_head(estimate, workloads),
            *_charges(estimate),
            *_alarms(estimate),
            *_free(estimate),
            *_basis(),
        ]
    )


def _head(estimate: Estimate, workloads: Sequence[str]) -> Iterator[str]:
    names = ", ".join(workloads)
    noun = "workload" if len(workloads) == 1 else "workloads"
    yield "# What a deployment costs while nothing happens"
    yield ""
    yield "Written by `python -m infra.cost`, from the templates of `spindown.toml`."
    yield ""
    yield (
        f"With {len(workloads)} {noun} ({names}), no message in a queue and no worker: "
        f"**{estimate.billed:,.2f} USD a month** in an account that uses its free allowances for "
        f"nothing else, {estimate.listed:,.2f} USD where they are used up. Workers come on top, "
        "by the second that they run."
    )
    yield ""


def _charges(estimate: Estimate) -> Iterator[str]:
    yield "| What | Quantity a month | USD each | Free a month | List, USD | Billed, USD | For |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    by_bill = sorted(estimate.charges, key=lambda one: (-one.billed, -one.listed))
    yield from (_row(charge) for charge in by_bill)
    yield f"| **Total** | | | | **{estimate.listed:,.2f}** | **{estimate.billed:,.2f}** | |"
    yield ""
    yield f"List prices of us-east-1 as of {AS_OF}, from:"
    yield ""
    used = {charge.usage for charge in estimate.charges}
    yield from (f"- <{source}>" for source in sorted({PRICES[usage].source for usage in used}))
    yield ""


def _row(charge: Charge) -> str:
    price = PRICES[charge.usage]
    free = _number(price.free) if price.free else ""
    return (
        f"| {charge.usage.value} | {_number(charge.quantity)} | {_number(price.each)} | {free} "
        f"| {charge.listed:,.2f} | {charge.billed:,.2f} | {', '.join(charge.purposes)} |"
    )


def _alarms(estimate: Estimate) -> Iterator[str]:
    each = PRICES[Usage.ALARM_METRIC].each
    yield "## Which alarms"
    yield ""
    yield (
        "An alarm is billed by the metrics that it reads, so there is one only for what must be "
        "heard even when the functions are silent, and for money. What a function finds wrong "
        "besides (a full quota, dry pools, an open breaker, a refused policy, late work, a dear "
        "item and its cause) it tells the same topic itself, which costs nothing until it speaks."
    )
    yield ""
    yield "| Alarm | Metrics | List, USD |"
    yield "|---|---:|---:|"
    for name, metrics in sorted(estimate.alarms.items()):
        yield f"| {name} | {metrics} | {metrics * each:,.2f} |"
    yield ""


def _free(estimate: Estimate) -> Iterator[str]:
    yield "## What costs nothing"
    yield ""
    whys: dict[str, list[str]] = {}
    for kind, (count, why) in sorted(estimate.free.items()):
        whys.setdefault(why, []).append(f"{count} {kind}")
    yield "| Resources | Why |"
    yield "|---|---|"
    yield from (f"| {', '.join(kinds)} | {why} |" for why, kinds in whys.items())
    yield ""


def _basis() -> Iterator[str]:
    yield "## What the quantities rest on"
    yield ""
    yield f"- A month has {HOURS_A_MONTH:,.0f} hours; a workload has one tick a minute."
    yield f"- A tick: {TICK.basis}."
    yield f"- A refresh of the offers, every hour: {REFRESH.basis}."
    yield f"- Judging what items cost, then, for each workload: {JUDGEMENT.basis}."
    yield "- A metric is billed for each hour in which a value is sent."
    yield ""


def _number(value: float) -> str:
    """Return a number as people write it, small ones to their first digits."""
    if value >= 1:
        return f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:,.2f}"  # noqa: PLR2004 - cents matter below
    return f"{value:.10f}".rstrip("0").rstrip(".") if value else "0"
