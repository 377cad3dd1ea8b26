"""Thresholds that each are possible but contradict each other."""

from datetime import timedelta

from spindown.config.duration import format_duration
from spindown.domain.policy import Policy
from spindown.error import ConfigError


def check_policy(policy: Policy) -> Policy:
    """Refuse thresholds that contradict each other (ConfigError), else return ``policy``."""
    rules = (
        (
            "unavailable_at_most",
            policy.unavailable_at_most >= policy.unavailable_for,
            "make it at least unavailable_for",
        ),
        (
            "lease_duration",
            policy.lease_duration >= 2 * policy.heartbeat_interval,
            "make it at least twice heartbeat_interval",
        ),
        (
            "heartbeat_stale_after",
            policy.heartbeat_stale_after > policy.heartbeat_interval,
            "make it longer than heartbeat_interval",
        ),
        ("warm_workers", policy.warm_workers <= policy.max_workers, "make it at most max_workers"),
        (
            "max_failures",
            policy.max_failures >= policy.max_failures_on_two,
            "make it at least max_failures_on_two",
        ),
        ("drain_within", policy.drain_within > timedelta(0), "make it longer than zero"),
        ("tick", policy.tick > timedelta(0), "make it longer than zero"),
        (
            "heartbeat_interval",
            policy.heartbeat_interval > timedelta(0),
            "make it longer than zero",
        ),
        (
            "max_lifetime",
            policy.max_lifetime > policy.boot_estimate,
            "make it longer than boot_estimate",
        ),
        (
            "ladder",
            [r.after for r in policy.ladder] == sorted({r.after for r in policy.ladder}),
            "order its rungs by a rising after",
        ),
        ("ladder", policy.ladder[0].after == timedelta(0), 'begin with a rung after = "0s"'),
    )
    for name, holds, mend in rules:
        if not holds:
            raise ConfigError(name, _shown(getattr(policy, name)), mend)
    return policy


def _shown(value: object) -> object:
    return format_duration(value) if isinstance(value, timedelta) else value
