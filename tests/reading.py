"""Ports on which nothing can be changed: for use cases that promise to write nothing."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from spindown.memory import PortCall, intercept
from spindown.port import ControlPorts

READS = frozenset(
    {
        "get",
        "query",
        "query_each",
        "find_machine",
        "get_each",
        "list",
        "versions",
        "now",
        "deployment",
        "workload",
        "history",
        "instances",
        "instance",
        "reclaimed",
        "spot_prices",
        "instance_types",
        "offerings",
        "on_demand_prices",
        "quotas",
        "reclaim_shares",
        "transfer_prices",
        "volume_price",
        "backlog",
    }
)


def only_reading(ports: ControlPorts) -> ControlPorts:
    """Return ports on which every call that could change something fails the test."""

    def watch(call: PortCall, proceed: Callable[[], Any]) -> Any:
        assert call.method in READS, f"called {call.port}.{call.method}"
        return proceed()

    watched = {
        f.name: intercept(getattr(ports, f.name), f.name, watch)
        for f in fields(ports)
        if f.name in {"table", "objects", "settings", "compute", "market", "metrics"}
    }
    return replace(ports, **watched, queue=lambda url: intercept(ports.queue(url), "queue", watch))
