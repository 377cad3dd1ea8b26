"""Thresholds that each are possible but contradict each other."""

from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta

from spindown.config.duration import format_duration
from spindown.contract.usage import OTHER_TYPES
from spindown.domain.lease import RELEASE_AFTER
from spindown.domain.offer import InstanceRequirements
from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy, Rung
from spindown.domain.shape import SCALES, unmet_types
from spindown.error import ConfigError

#: Messages that are older are sent anew, and their age is lost (``job.message``).
_LONGEST = timedelta(days=7)
#: An instance whose worker gives no sign of life for 15 minutes powers off by itself
#: (``worker/system/deadman.sh``); three heartbeats may fail.
_HEARTBEAT_AT_MOST = timedelta(minutes=5)
_POSITIVE = ("drain_within", "tick", "heartbeat_interval", "lease_duration", "max_item_time")


def check_policy(policy: Policy) -> Policy:
    """Refuse thresholds that contradict each other (ConfigError), else return ``policy``."""
    for name, holds, remedy in (*_lengths(policy), *_counts(policy), *_types(policy)):
        if not holds:
            raise ConfigError(name, _shown(getattr(policy, name)), remedy)
    return policy


def _lengths(policy: Policy) -> Iterator[tuple[str, bool, str]]:
    for name in _POSITIVE:
        yield name, getattr(policy, name) > timedelta(0), "make it longer than zero"
    # Shorter ones are for the local system. EventBridge calls no function more often, and a plan by
    # a longer one would launch too early.
    yield "tick", policy.tick <= timedelta(minutes=1), "make it at most 1m: so often AWS runs it"
    yield (
        "pool_cooldown_at_most",
        policy.pool_cooldown_at_most >= policy.pool_cooldown,
        f"make it at least {_named('pool_cooldown', policy)}",
    )
    yield (
        "lease_duration",
        policy.lease_duration >= 2 * policy.heartbeat_interval,
        f"make it at least twice {_named('heartbeat_interval', policy)}",
    )
    # A message is received for the length of a lease, and SQS hides it for 12 h at most.
    yield "lease_duration", policy.lease_duration <= RELEASE_AFTER, "make it at most 11h"
    yield (
        "heartbeat_interval",
        policy.heartbeat_interval <= _HEARTBEAT_AT_MOST,
        "make it at most 5m",
    )
    yield (
        "heartbeat_stale_after",
        policy.heartbeat_stale_after > policy.heartbeat_interval,
        f"make it longer than {_named('heartbeat_interval', policy)}",
    )
    yield from _deadline(policy)
    yield (
        "scale_up_timeout",
        policy.scale_up_timeout >= policy.boot_estimate,
        f"make it at least {_named('boot_estimate', policy)}",
    )
    yield (
        "max_lifetime",
        policy.max_lifetime > policy.boot_estimate,
        f"make it longer than {_named('boot_estimate', policy)}",
    )


def _deadline(policy: Policy) -> Iterator[tuple[str, bool, str]]:
    within = policy.finish_within
    if within is None:
        return
    least = policy.start_within + policy.boot_estimate
    both = f"{_named('start_within', policy)} and {_named('boot_estimate', policy)}"
    yield "finish_within", within > least, f"make it longer than {both} together"
    # Every epoch is an instance; as many changes of machines must have room as may count.
    yield (
        "finish_within",
        within >= policy.max_failures * policy.boot_estimate,
        f"leave room for {_named('max_failures', policy)} times {_named('boot_estimate', policy)}",
    )
    yield "finish_within", within <= _LONGEST, "make it at most 7d"


def _counts(policy: Policy) -> Iterator[tuple[str, bool, str]]:
    afters = [rung.after for rung in policy.ladder]
    yield (
        "warm_workers",
        policy.warm_workers <= policy.max_workers,
        f"make it at most {_named('max_workers', policy)}",
    )
    yield (
        "max_failures",
        policy.max_failures >= policy.max_failures_on_two,
        f"make it at least {_named('max_failures_on_two', policy)}",
    )
    is_warm = policy.warm_workers > 0 or bool(policy.warm_schedule)
    yield (
        "dispatch",
        policy.dispatch is not Dispatch.DEDICATED or not is_warm,
        "keep no workers warm: a dedicated machine ends with its job",
    )
    yield "ladder", afters == sorted(set(afters)), "order its rungs by a rising after"
    yield "ladder", afters[0] == timedelta(0), 'begin with a rung after = "0s"'


def _types(policy: Policy) -> Iterator[tuple[str, bool, str]]:
    names = [each.name for each in policy.types]
    yield "types", len(set(names)) == len(names), "give each type a name of its own"
    yield "types", OTHER_TYPES not in names, f"no type may be called {OTHER_TYPES}"
    for name, (*_, most) in SCALES.items():
        for each in policy.types:
            asked = getattr(each.needs, name)
            yield "types", asked is None or asked <= most, f"make {name} at most {most}"
    has_ceilings = policy.requirements_at_most != JobNeeds()
    yield "requirements_at_most", bool(names) or not has_ceilings, "declare types as well"


def odd_types(
    policy: Policy, workload: InstanceRequirements, root_volume_gib: int
) -> Iterator[str]:
    """Yield what fixes each type whose jobs no machine of the workload can do."""
    for each, unmet in unmet_types(policy, workload, root_volume_gib):
        field, most, setting = (unmet.about[name] for name in ("field", "most", "setting"))
        yield f"let {field} of type {each.name} be {most} at most, or raise {setting}"


def _named(name: str, policy: Policy) -> str:
    """Return a key with its value, which may be a default that no file shows."""
    return f"{name} ({_shown(getattr(policy, name))})"


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return [_shown_of_list(each) for each in value]
    if isinstance(value, JobNeeds):
        needs = ((each.name, getattr(value, each.name)) for each in fields(value))
        return {name: _shown(need) for name, need in needs if need is not None}
    if isinstance(value, frozenset):
        return sorted(value)
    return format_duration(value) if isinstance(value, timedelta) else value


def _shown_of_list(value: object) -> object:
    if isinstance(value, JobType):
        return value.name
    return _shown(value.after) if isinstance(value, Rung) else value
