"""Write docs/settings.md: every key of spindown.toml with its form, default and meaning.

Forms come from the models that validate the file, defaults from them and from the policy of the
domain, meanings from ``meaning.toml`` beside this. A key without a meaning, or a meaning without a
key, is an error.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from spindown.config import (
    DeploymentConfig,
    NetworkConfig,
    PolicyConfig,
    PricingConfig,
    RegionConfig,
    WorkloadConfig,
    format_duration,
)
from spindown.config.image import ImageConfig
from spindown.config.pricing import DiscountConfig, PaidConfig
from spindown.config.run import RunConfig
from spindown.config.schema import (
    NONE_IS,
    CeilingsConfig,
    Config,
    JobTypeConfig,
    RequirementsConfig,
    RungConfig,
    SourceConfig,
    WarmSpanConfig,
)
from spindown.domain.policy import JobNeeds, Policy, Rung

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
REQUIRED = "required"
_MEANINGS = tomllib.loads(Path(__file__).with_name("meaning.toml").read_text(encoding="utf-8"))

_HEAD = """\
# Settings

Every key of spindown.toml. `python tools/reference.py` writes this page; the text is in
`tools/meaning.toml`.

A duration is text with its unit: `"90s"`, `"10m"`, `"1h30m"` (ms, s, m, h, d). Money is USD, memory
GiB. `"auto"` means: learned from the workload. An unknown key, or a value that is not allowed, is
refused with one sentence that names the key, the value and the correction. No duration may be
longer than 3650d, and no number of a policy larger than a thousand million.
"""
_FIRST = """\
`spindown init` writes most of them. Those of `policy` are changed while the system runs, by
`spindown policy set`; the others by a deploy.

"""
_LIVE = """\
Every key of this table can be changed while the system runs, without a deploy:
`spindown policy set NAME idle_timeout=2m`.
"""

#: Table -> key -> the heading of the group that begins with it.
_GROUPS = {
    "[deployment]": {
        "name": "Where it is",
        "budget_per_month": "Money, and who is told",
        "network": "Network and regions",
        "tags": "Rules of an account",
        "log_retention": "What is kept, and how it is proven",
    },
    "[workload.NAME.policy]": {
        "scale_up_threshold": "When machines start, and how many",
        "rank_by": "Which machine is bought, and what all may cost",
        "types": "Jobs of several sizes",
        "regions": "Where, and after a refusal",
        "idle_timeout": "When machines end",
        "heartbeat_interval": "Leases and commits",
        "max_losses": "When a job is given up",
        "spot_price_ratio_estimate": "What is assumed until it is measured",
        "alarm_cost_rise": "When alarms ring",
        "max_items_per_job": "The rest",
    },
}


@dataclass(frozen=True)
class Table:
    """One table of spindown.toml, and the model that validates it."""

    title: str
    model: type[BaseModel]
    #: Said below the title.
    note: str = ""
    #: Where defaults come from that the model leaves open.
    defaults: object = None

    @property
    def meanings(self) -> Mapping[str, str]:
        """Return what each of its keys means."""
        meanings: Mapping[str, str] = _MEANINGS[self.title.strip("[]")]
        return meanings


_OUTPOST_NOTE = """\
A region as `us-west-2`, with a stack of its own. Queue, bucket and ledger stay at home; what a
worker there reads and writes crosses regions, and its price is part of every item's cost.
"""

_PRICING_NOTE = """\
What you pay other than EC2's prices. Ranking, limits in dollars, budget and books go by it, and
`plan` says that they do. Not set: EC2's prices.
"""

_SOURCE_NOTE = """\
Objects of which each is a job as soon as it is in the bucket ([sources.md](sources.md)).
"""

TABLES = (
    Table("spindown.toml", Config),
    Table("[deployment]", DeploymentConfig),
    Table("[deployment.network]", NetworkConfig),
    Table("[deployment.outpost.REGION]", RegionConfig, _OUTPOST_NOTE),
    Table("[pricing]", PricingConfig, _PRICING_NOTE),
    Table("[[pricing.discount]]", DiscountConfig),
    Table("[[pricing.paid]]", PaidConfig),
    Table("[workload.NAME]", WorkloadConfig),
    Table("[[workload.NAME.sources]]", SourceConfig, _SOURCE_NOTE),
    Table("[workload.NAME.run]", RunConfig),
    Table("[workload.NAME.requirements]", RequirementsConfig),
    Table("[workload.NAME.image]", ImageConfig),
    Table("[workload.NAME.policy]", PolicyConfig, _LIVE, Policy()),
    Table("[[workload.NAME.policy.ladder]]", RungConfig),
    Table("[[workload.NAME.policy.warm_schedule]]", WarmSpanConfig),
    Table("[[workload.NAME.policy.types]]", JobTypeConfig),
    Table("[workload.NAME.policy.requirements_at_most]", CeilingsConfig),
)


_BUDGET = """
## What a lowered limit does

The next tick ends the workers that `max_workers`, `max_dollars_per_hour`, the price ceilings or the
ladder have no room for any more, because you lowered one or because a spot price rose. Machines
dearer than allowed go first, then those whose items cost most, then the oldest, and never more than
must. A machine that boots is terminated at once. One that is idle ends within `tick` +
`heartbeat_interval` + 1 min, a busy one after the jobs in hand (at most 11 h). `why` names them and
the limit. None is replaced unless the work asks for it and the new limits have room.

For its price, a machine is ended only when a price ceiling, or `max_dollars_per_hour`, is exceeded
by more than 10 %. Else a spot price that wobbles about it would end machines and launch them again.
What is launched stays below the ceilings. A worker that comes to take a running job over does not
count until it has it. A spot price that has moved is noted at most about 10 minutes later, while
EC2 tells prices: those in use are up to five minutes old, and charges note them every five minutes.

## What a budget bounds

A launch sets aside what it will cost: its boot, the work in sight that it is bought for, and its
end, at the price asked. Charges, every five minutes, release that or correct it to what the worker
still needs. The rest is given back by the tick that sees the end of its last machine, some two
minutes after it; `status` shows it as set aside until then. A launch whose part does not fit into
what is left of `budget_per_month` is not made; `plan` and `why` name both numbers. With `stop
launches` it sets aside all that waits, since its machine will do all that waits. With the other
two it is made if the budget pays for one job (or as much work as a boot takes): the machine ends
when the budget does.

A tick ends a worker as soon as what is left pays for its end and no longer for its next job. So
while jobs take as long as they are known to take, and boots too, a month costs no more than its
budget. Where estimates are wrong, as before anything is measured, the month costs more by this at
most, for each machine of the deployment that runs then:

| `when_spent` | a machine costs, beyond the budget, at most its price by the hour times |
|---|---|
| `stop launches` | the time until it is idle, warm or not, and has ended: while work comes |
| `finish jobs in hand` | `tick` + `heartbeat_interval` + 1 min + the longest job (at most 11 h) |
| `stop` | `tick` + `heartbeat_interval` + 1.5 min, or + `stop_grace` + 80 s if longer |

With four machines at 0.20 USD an hour, `tick` and `heartbeat_interval` of a minute and jobs of an
hour at most, that is 0.84 USD for `finish jobs in hand` and 0.05 USD for `stop`.

EC2 bills a spot machine at the price of the moment, and so is it charged here: a price that has
moved is noted at most about ten minutes later, while EC2 tells prices, and is in the books five
minutes after that. What a machine costs dearer until it is noted comes on top. Of a machine that
EC2 takes back within its first hour the books keep its volume and address, which EC2 still bills:
about two cents an hour at 100 GiB and a tenth of a dollar at 1,000.

The bound holds while ticks run and workers hear. If ticks fail, read the time without ticks in
place of `tick`. A worker that hears nothing, or was turned and goes on, is ended by the tick:
with `stop` 4 x `tick` + `heartbeat_interval` + 2.8 min after it was told, with `finish jobs in
hand` 11 h later, and in any case as long after `max_lifetime` and `lifetime_grace`. If EC2's
answer to a launch is lost, its cost is already reserved. Costs of other workloads appear up to
five minutes late, unless they were reserved. What EC2 does not bill after all (a reclaim in the
first hour) is deducted. The budget covers the machines with their disk and address; what else is
billed is in
[costs.md](costs.md#what-work-costs-beside-its-machines).
"""


def render() -> str:
    """Return the page."""
    return (
        _HEAD + _render_first() + "".join(f"\n{_render_table(table)}" for table in TABLES) + _BUDGET
    )


def _render_first() -> str:
    """Return the settings that people change, each with a link to its table."""
    by_title = {table.title.strip("[]"): table for table in TABLES}
    rows = ["| setting | default | change it when |", "|---|---|---|"]
    for path, when in _MEANINGS["settings that people change"].items():
        title, _, key = path.rpartition(".")
        anchor = re.sub(r"[^a-z]", "", title.lower())
        rows.append(f"| [`{path}`](#{anchor}) | {_default(by_title[title], key)} | {when} |")
    return "\n## The ten that people change\n\n" + _FIRST + "\n".join(rows) + "\n"


def _render_table(table: Table) -> str:
    odd = set(table.meanings) ^ set(table.model.model_fields)
    if odd:
        raise KeyError(f"{table.title}: meanings and keys differ in {sorted(odd)}")
    properties = table.model.model_json_schema()["properties"]
    head = ["| key | form | default | meaning |", "|---|---|---|---|"]
    groups = _GROUPS.get(table.title, {})
    if not groups.keys() <= table.meanings.keys():
        raise KeyError(f"{table.title}: a group begins with no key of it")
    lines = [] if groups else head
    for key, meaning in table.meanings.items():
        if key in groups:
            lines += [*([""] if lines else []), f"### {groups[key]}", "", *head]
        form, default = _form(properties[key], table.model), _default(table, key)
        lines.append(f"| `{key}` | {form} | {default} | {meaning} |")
    note = f"{table.note}\n" if table.note else ""
    return f"## `{table.title}`\n\n{note}" + "\n".join(lines) + "\n"


def _default(table: Table, key: str) -> str:
    info = table.model.model_fields[key]
    if table.defaults is not None:
        value = getattr(table.defaults, key)
    elif info.is_required():
        return REQUIRED
    else:
        value = info.get_default(call_default_factory=True)
    if value is None and table.model is PolicyConfig and key in NONE_IS:
        return f'`"{NONE_IS[key]}"`'
    if isinstance(value, tuple) and value and isinstance(value[0], Rung):
        return "<br>".join(f"`{_spell_rung(rung)}`" for rung in value)
    if value in (None, (), frozenset(), JobNeeds()) or isinstance(value, BaseModel):
        return ""
    return "<br>".join(f"`{line}`" for line in _spell(value))


def _spell_rung(rung: Rung) -> str:
    kinds = " or ".join(sorted(rung.capacity_types, reverse=True))
    return f"{format_duration(rung.after)}: {kinds}"


def _spell(value: object) -> Iterator[str]:
    """Yield a value as the file spells it, a table line by line."""
    if isinstance(value, timedelta):
        yield f'"{format_duration(value)}"'
    elif isinstance(value, Mapping):
        yield from (f"{name} = {json.dumps(each)}" for name, each in value.items())
    elif isinstance(value, frozenset):
        yield json.dumps(sorted(value, key=_place))
    elif isinstance(value, float) and value.is_integer():
        yield str(int(value))
    else:
        yield json.dumps(value)


def _place(member: Any) -> Any:
    """Return by what a member of a set is sorted: days of the week in their own order."""
    return list(type(member)).index(member) if isinstance(member, Enum) else member


def _form(schema: Mapping[str, Any], model: type[BaseModel]) -> str:
    """Return in a few words what a value must look like, from its JSON schema."""
    choices: Sequence[Mapping[str, Any]] = schema.get("anyOf", [schema])
    words = [_word(each, model) for each in choices if each.get("type") != "null"]
    return " or ".join(words)


def _word(schema: Mapping[str, Any], model: type[BaseModel]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _word(model.model_json_schema()["$defs"][name], model)
    if "enum" in schema:
        return " or ".join(f'`"{value}"`' for value in schema["enum"])
    kind = schema.get("type", "")
    if kind == "array":
        return f"list of {_word(schema['items'], model)}"
    if kind in _NUMBERS:
        return f"{_NUMBERS[kind]}{_bounds(schema)}"
    return _WORDS[schema.get("format", kind)]


_NUMBERS = {"integer": "whole number", "number": "number"}
_WORDS = {
    "boolean": "true or false",
    "duration": "duration",
    "object": "table",
    "path": "path",
    "string": "text",
    "time": "time of day",
}


def _bounds(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        return f" above {schema['exclusiveMinimum']:g}" + (f" to {high:g}" if high else "")
    if low is None:
        return ""
    return f" from {low:g}" + (f" to {high:g}" if high is not None else "")


def main() -> int:
    """Write the page; return the exit status."""
    PAGE.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
