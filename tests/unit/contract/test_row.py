"""Whoever adds a field to a row has to say who writes it: none is forgotten."""

from dataclasses import fields

from spindown.contract.row import (
    DECIDED,
    NEXT_LOOKS,
    REPORTED_BY_EC2,
    BacklogRow,
    ClaimsRow,
    names_of,
    parse_processor_kind,
    queue_fields,
)
from spindown.control.plan.backlog import tick_fields
from spindown.domain.fleet import Worker
from tests.builders import NOW

#: What the worker's own row says: the worker writes it, or a tick tells the worker by it.
OF_THE_OWN_ROW = {
    "instance_id",
    "gpu_name",
    "gpu_count",
    "vcpus",
    "slots",
    "state",
    "checked_in_at",
    "heartbeat_at",
    "first_item_at",
    "boot_phases",
    "idle_since",
    "busy_slots",
    "claimed_at",
    "declined_at",
    "unanswered_at",
    "gpu_percent",
    "vram_percent",
    "vram_gib",
    "interrupted_at",
    "rebalance_at",
    "draining_at",
    "unfit_at",
    "warm_until",
    "migrating_at",
    "spent_at",
    "surplus_at",
    "condemned_at",
    "miss_counted",
    "reason",
    "version",
}


def test_what_computes_has_a_number_that_can_be_counted_with() -> None:
    assert parse_processor_kind("T4#0.5") == ("T4", 0.5)
    for text in ("T4", "#x", "T4#", "T4#nan", "T4#inf", "T4#-1", "T4#1e300", "T4#" + "9" * 5000):
        assert parse_processor_kind(text) is None


def test_each_field_of_a_worker_has_one_writer() -> None:
    known = [*DECIDED, *REPORTED_BY_EC2, *OF_THE_OWN_ROW]

    assert sorted(known) == sorted(each.name for each in fields(Worker))


def test_a_tick_writes_all_of_the_backlog_that_nobody_else_does() -> None:
    written = tick_fields(BacklogRow())

    others = {*names_of(ClaimsRow), *NEXT_LOOKS, "workers_elsewhere"}
    assert sorted([*written, *others]) == sorted(names_of(BacklogRow))


def test_what_is_copied_of_a_queue_says_nothing_of_the_rest() -> None:
    row = BacklogRow(visible=3, backlog_since=NOW, claims=7, margin=60.0)

    copied = queue_fields(row)

    assert (copied["visible"], copied["backlog_since"]) == (3, NOW)
    assert copied.keys().isdisjoint({"claims", "margin", *NEXT_LOOKS})
