"""Write docs/settings.md: every key of spindown.toml with its form, default and meaning.

Forms come from the models that validate the file, defaults from them and from the policy of the
domain; the meanings are here. A key without a meaning, or a meaning without a key, is an error.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from spindown.config import (
    DeploymentConfig,
    NetworkConfig,
    OutpostConfig,
    PolicyConfig,
    WorkloadConfig,
    format_duration,
)
from spindown.config.run import RunConfig
from spindown.config.schema import (
    ImageConfig,
    RequirementsConfig,
    RungConfig,
    WarmSpanConfig,
)
from spindown.domain.policy import Policy, Rung

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
REQUIRED = "required"

_HEAD = """\
# Settings

Every key of spindown.toml. This page is written by `python tools/reference.py`; edit that instead.

A duration is text with its unit: `"90s"`, `"10m"`, `"1h30m"` (ms, s, m, h, d). Money is USD, memory
GiB. `"auto"` means: learned from what the workload shows. A key that does not exist, or a value
that cannot hold, is refused with one sentence that names the key, the value and the mend.
"""
_LIVE = """\
Every key of this table can be changed while the system runs, without a deploy:
`spindown policy set NAME idle_timeout=2m`.
"""


@dataclass(frozen=True)
class Table:
    """One table of spindown.toml, the model that validates it, and what its keys mean."""

    title: str
    model: type[BaseModel]
    meanings: Mapping[str, str]
    #: Said below the title.
    note: str = ""
    #: Where defaults come from that the model leaves open.
    defaults: object = None


_DEPLOYMENT = {
    "name": "Part of every resource's name.",
    "region": "Home: where queues, bucket and ledger are, and workers unless told otherwise.",
    "zones": "Zones in which workers may run, all of the region.",
    "budget_per_month": "What may be spent and set aside in a UTC month. Stops launches, never "
    "work. Not set: no budget.",
    "alarm_email": "Who gets the alarms; AWS asks the address to confirm. Not set: nobody is told.",
    "network": "An existing network, see below. Not set: a VPC of public subnets is made.",
    "session_manager": "Whether SSM Session Manager may open a shell on workers. No port opens; "
    "the workers' role gets the few actions of its agent.",
    "outpost": "Further regions where workers may run, see below; nine at most.",
}
_OUTPOST = {
    "zones": "Zones in which workers may run there, all of that region.",
    "network": "An existing network of that region: a table as `[deployment.network]`. Not set: a "
    "VPC of public subnets is made.",
}
_OUTPOST_NOTE = """\
A region as `us-west-2`, with a stack of its own. Queue, bucket and ledger stay at home; what a
worker there reads and writes crosses regions, and its price is part of every item's cost.
"""
_NETWORK = {
    "vpc_id": "The VPC.",
    "subnets": "Zone to subnet id, one for each of the zones.",
}
_WORKLOAD = {
    "run": "The code and how it is called, see below.",
    "requirements": "What an instance must have, see below.",
    "policy": "When, what and how long, see below.",
    "image": "What an instance boots from, see below.",
    "inputs": "S3 prefixes that its jobs may read, besides what `spindown submit` uploads. The "
    "worker reads them; a message that points elsewhere goes to the dead-letter queue.",
    "models": "S3 prefixes that the code may read by itself, with the role of the worker; no "
    "message may name them. Needs `run.metadata_access`.",
    "kms_keys": "ARNs of the KMS keys that inputs, models or secrets are encrypted with, if they "
    "are your own. Decrypting through S3, Secrets Manager and SSM is granted, nothing else.",
}
_RUN = {
    "entrypoint": "`module:callable`, found below `code`. One of `entrypoint`, `command` and "
    "`image` is required.",
    "command": "A program and its arguments, started in `code`; see "
    "[workload](workload.md#any-program). Beside `image`: what its container runs.",
    "image": "A container image, best with its digest; see [workload](workload.md#a-container).",
    "code": "Directory of the code, relative to spindown.toml. Hidden files are left out. Only an "
    "image can do without.",
    "requirements": "A requirements.txt below `code`, installed with the image.",
    "results": "Of a command or a container. `per-item`: it writes a line for each item. "
    "`per-job`: it gets a whole job, and its exit status stands for all of it.",
    "batch_size": "Items in one call, at most.",
    "item_timeout": "A call over n items may take n times as long; then its process is killed and "
    "the attempt counts as a failure of the job.",
    "setup_timeout": "Bound of importing the code and of its `setup`, or of pulling the image.",
    "job_timeout": "Bound of one attempt at a job; past it the attempt counts as a failure. Not "
    "set: none.",
    "stop_grace": "What a command or a container has between SIGTERM and SIGKILL when its worker "
    "must leave.",
    "env": "Added to the environment of the code.",
    "secrets": "Environment variable to secret: an SSM parameter (`/path/of/it`), or the name or "
    "ARN of a secret of Secrets Manager, in the home region. The worker reads it when it starts.",
    "slots": "How many jobs an instance holds at once: one for each GPU, one, or a number.",
    "metadata_access": "Whether the code may reach instance metadata, and so everything that the "
    "worker's role may do.",
}
_REQUIREMENTS = {
    "gpu_names": "Only these GPUs, by EC2's names (`T4`, `L4`, `A10G`). Not set: any.",
    "gpu_names_denied": "Never these GPUs.",
    "gpu_manufacturer": "Maker of the GPU.",
    "gpu_count_min": "GPUs of an instance, at least.",
    "gpu_count_max": "GPUs of an instance, at most. Not set: any.",
    "gpu_memory_gib_min": "VRAM of one GPU.",
    "gpu_memory_total_gib_min": "VRAM of all GPUs of an instance together.",
    "vcpus_min": "vCPUs.",
    "memory_gib_min": "Memory of the instance.",
    "architectures": "Architectures for which the code and the image are there.",
    "families_denied": "Never these families (`g4dn`).",
    "instance_types": "Only these types, by exact name. Not set: all that fit.",
    "allow_fractional_gpu": "Whether a part of a GPU will do (g6f).",
    "allow_bare_metal": "Whether bare metal will do; it takes long to boot.",
}
_IMAGE = {
    "mode": "`bootstrap`: each instance installs the worker, the code's requirements included, on "
    "the image of `parameters` at its start. `bake`: EC2 Image Builder does that in the deploy and "
    "every week (stack `NAME-image`), and instances start in less time; an image's snapshot bills "
    "as long as it is kept. `ami`: the image of `parameters` is your own, on which "
    "`worker/system/install.sh` has run.",
    "parameters": "Architecture to the SSM parameter that holds the AMI id, looked up at each "
    "launch or bake. One of your own must have the data type `aws:ec2:image`.",
    "root_volume_gib": "Size of the gp3 root volume; its price is part of every offer.",
    "root_device": "Name of the image's root device. Not set: `/dev/xvda` if the parameter's name "
    "tells of Amazon Linux, else `/dev/sda1`.",
}
_POLICY = {
    "scale_up_threshold": "Visible messages from which a launch is due at once; fewer wait until "
    "`start_within` calls for it. 1: any work launches at once, for `drain_within` or for the "
    "promise, whichever needs more; more than ever wait: work gathers as long as the promise "
    "allows, at the fewest boots and least dollars (`docs/benchmarks.md` is measured so).",
    "start_within": "How long work may wait to be started: a launch is held for more work no "
    "longer than leaves room for a slow boot. Once it has passed, every rung of the ladder is "
    "open.",
    "drain_within": "Time within which the present backlog should be worked off.",
    "finish_within": "Time from a job's sending to its end. Jobs wait for spot as long as that "
    "leaves time, go to on-demand when it no longer does, and back to spot, or to cheaper spot, "
    "while they run, if `max_workers` has room for both machines. Until a speed is measured, and "
    "where it is not set, waiting opens the ladder. Longer than `start_within` and "
    "`boot_estimate`, with room for `max_failures` boots; 7 days at most. See "
    "[a deadline](workload.md#a-deadline).",
    "max_workers": "Workers at once, at most. 0: none is launched, and those that run end after "
    "the jobs that they hold.",
    "warm_workers": "Workers that are launched without work and stay without it, for who must not "
    "wait. They bill. Should the ticks end, or the number be lowered, they end themselves within "
    "5 ticks.",
    "warm_schedule": "Hours at which more than `warm_workers` are kept warm, see below; never more "
    "than `max_workers`. `spindown plan` tells what they come to in a month.",
    "max_attempts_per_tick": "Launch requests of one tick, at most.",
    "rank_by": "What the candidate list is sorted by.",
    "band": "Offers within this share of the best cost go into one request and are left to EC2's "
    "choice; 0 tries them one by one.",
    "max_price_per_hour": "Ceiling for one instance: with root volume and public IPv4.",
    "max_price_per_gpu_hour": "The same for each GPU of an instance. Not set: no such ceiling.",
    "min_reliability": "Least probability that a spot instance lives one hour.",
    "ladder": "Rungs of the price ladder, see below.",
    "spot_price_ratio_estimate": "Spot over on-demand price where the spot price is not known.",
    "max_dollars_per_hour": "Ceiling for all workers of the workload together. Not set: none.",
    "regions": "Launch in these regions only. Not set: in each of the deployment's.",
    "unavailable_for": "How long a pool that ran dry, or reclaimed an instance, is left alone; "
    "doubled with each time in a row.",
    "unavailable_at_most": "Bound of that doubling.",
    "quota_blocked_for": "How long a quota class that is full is left alone.",
    "scale_up_timeout": "Time in which an instance must check in, or twice the p95 of learned boot "
    "times if that is longer.",
    "idle_timeout": "A worker without a job ends itself after this.",
    "scale_down_delay": "Grace beyond the idle timeout before reconcile ends a worker.",
    "max_lifetime": "A worker drains by itself at this age.",
    "lifetime_grace": "Time to finish after that.",
    "heartbeat_stale_after": "A worker without a sign of life for this long is condemned.",
    "heartbeat_interval": "How often a worker extends its leases and says that it lives.",
    "lease_duration": "How long a lease holds without a heartbeat; then the job may be claimed by "
    "another. At least twice `heartbeat_interval`.",
    "commit_margin": "At an interruption results are committed this long before the deadline.",
    "checkpoint_items": "Commit after so many items. Not set: by time alone.",
    "checkpoint_interval": "Commit after this time; auto is sqrt(2 x cost x time between "
    "interruptions), from 10 s to 30 min.",
    "max_losses": "Losses on at least two instances from which a job goes to the dead-letter "
    "queue.",
    "max_failures": "Failures and losses in all from which it does.",
    "max_failures_on_two": "Failures and losses on at least two instances from which it does.",
    "failures_to_quarantine": "A worker whose last so many different jobs all failed drains.",
    "boot_estimate": "From launch to check-in, until it is measured.",
    "items_per_job_estimate": "Items of a job, until they are measured.",
    "throughput_estimate": "Items per hour of one T4, until anything is measured; other GPUs by "
    "their datasheets.",
    "mib_per_item_estimate": "MiB of input an item, until they are measured: what a worker away "
    "from home would have to fetch across regions.",
    "max_items_per_job": "A larger job is split into children.",
    "tick": "Period of the tick, by which every promise is reckoned. AWS ticks each minute.",
}
_RUNG = {
    "after": "From this waiting time on, or from `start_within` if that is sooner. The first rung "
    "is at `0s`.",
    "capacity_types": "What may be bought then.",
    "max_price_per_hour": "At most at this price. Not set: `max_price_per_hour` of the policy.",
}

_WARM = {
    "days": "Days on which the span starts: `mon` to `sun`.",
    "start": "From this time of day on.",
    "end": "Until then; at or before `start` it is the next day's.",
    "workers": "How many. Of spans that overlap the largest holds.",
    "time_zone": "Whose clock that is, by IANA's name, summer time included.",
}

TABLES = (
    Table("[deployment]", DeploymentConfig, _DEPLOYMENT),
    Table("[deployment.network]", NetworkConfig, _NETWORK),
    Table("[deployment.outpost.REGION]", OutpostConfig, _OUTPOST, _OUTPOST_NOTE),
    Table("[workload.NAME]", WorkloadConfig, _WORKLOAD),
    Table("[workload.NAME.run]", RunConfig, _RUN),
    Table("[workload.NAME.requirements]", RequirementsConfig, _REQUIREMENTS),
    Table("[workload.NAME.image]", ImageConfig, _IMAGE),
    Table("[workload.NAME.policy]", PolicyConfig, _POLICY, _LIVE, Policy()),
    Table("[[workload.NAME.policy.ladder]]", RungConfig, _RUNG),
    Table("[[workload.NAME.policy.warm_schedule]]", WarmSpanConfig, _WARM),
)


def render() -> str:
    """Return the page."""
    return _HEAD + "".join(f"\n{_render_table(table)}" for table in TABLES)


def _render_table(table: Table) -> str:
    odd = set(table.meanings) ^ set(table.model.model_fields)
    if odd:
        raise KeyError(f"{table.title}: meanings and keys differ in {sorted(odd)}")
    properties = table.model.model_json_schema()["properties"]
    rows = [
        f"| `{key}` | {_form(properties[key], table.model)} | {_default(table, key)} | {meaning} |"
        for key, meaning in table.meanings.items()
    ]
    head = ["| key | form | default | meaning |", "|---|---|---|---|"]
    note = f"{table.note}\n" if table.note else ""
    return f"## `{table.title}`\n\n{note}" + "\n".join([*head, *rows]) + "\n"


def _default(table: Table, key: str) -> str:
    info = table.model.model_fields[key]
    if table.defaults is not None:
        value = getattr(table.defaults, key)
    elif info.is_required():
        return REQUIRED
    else:
        value = info.get_default(call_default_factory=True)
    if value is None and _takes_auto(table.model, key):
        return '`"auto"`'
    if isinstance(value, tuple) and value and isinstance(value[0], Rung):
        return "<br>".join(f"`{_spell_rung(rung)}`" for rung in value)
    if value in (None, (), frozenset()) or isinstance(value, BaseModel):
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
        yield json.dumps(sorted(value))
    elif isinstance(value, float) and value.is_integer():
        yield str(int(value))
    else:
        yield json.dumps(value)


def _takes_auto(model: type[BaseModel], key: str) -> bool:
    return model is PolicyConfig and key in {"idle_timeout", "checkpoint_interval"}


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
