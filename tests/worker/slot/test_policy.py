"""A slot lives by the policy in force."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from spindown.domain.policy import Policy
from tests.slot import SlotWorld


def test_the_heartbeat_follows_the_policy_in_force(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    changed = replace(Policy(), idle_timeout=timedelta(minutes=2), commit_margin=timedelta(3))
    slot.world.set_policy(changed)
    slot.watch.beat()
    assert slot.life.state.standing.policy == changed
    assert slot.life.state.standing.idle_timeout == timedelta(minutes=2)


def test_an_unreadable_policy_leaves_the_last_one_in_force(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    changed = replace(Policy(), idle_timeout=timedelta(minutes=2))
    slot.world.set_policy(changed)
    slot.watch.beat()
    slot.world.set_policy("{")
    slot.watch.beat()
    assert slot.life.state.standing.policy == changed


def test_the_heartbeat_tells_the_dead_man_check_the_lifetime(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.watch.beat()
    assert (tmp_path / "alive").read_text() == f"{24 * 3600 + 900}\n"


def test_the_dead_man_check_reads_a_whole_lifetime_at_any_time(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.set_policy(replace(Policy(), max_lifetime=timedelta(days=100)))
    # A heartbeat learns of a policy that the next one tells.
    slot.watch.beat()
    with (tmp_path / "alive").open() as opened:
        slot.watch.beat()
        assert opened.read() == f"{24 * 3600 + 900}\n"
    assert (tmp_path / "alive").read_text() == f"{100 * 24 * 3600 + 900}\n"
