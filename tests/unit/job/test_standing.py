"""The policy that a worker goes by, the log that it keeps, the fence that it writes."""

import json
from datetime import timedelta
from itertools import pairwise

import pytest

from spindown.contract.codec import encode
from spindown.contract.job.manifest import JobState, Manifest, manifest_key
from spindown.contract.row import POLICY, control_partition
from spindown.domain.idle import idle_timeout
from spindown.domain.learning import Knowledge
from spindown.domain.policy import Policy
from spindown.error import Unreachable
from spindown.job.attachment.log import keep_log, read_logs
from spindown.job.manifest_store import load_manifest, save_manifest
from spindown.job.policy_in_force import read_standing
from spindown.memory.interception import PortCall
from spindown.port import Key, Write
from tests.work import WORKLOAD, WorkWorld

LEARNED = timedelta(minutes=7)


def put_policy(world: WorkWorld, policy: Policy, **fields: object) -> None:
    row = {"effective": json.dumps(encode(policy)), **fields}
    key = Key(partition=control_partition(WORKLOAD), sort=POLICY)
    world.table.write(Write(key=key, set=row))


@pytest.mark.parametrize(
    ("set_to", "expected"), [(None, LEARNED), (timedelta(minutes=10), timedelta(minutes=10))]
)
def test_the_learned_idle_timeout_holds_only_where_none_is_set(
    set_to: timedelta | None, expected: timedelta
) -> None:
    world = WorkWorld()
    put_policy(world, Policy(idle_timeout=set_to), idle_timeout=LEARNED.total_seconds())

    assert read_standing(world.table, WORKLOAD).idle_timeout == expected


def test_an_unreadable_policy_leaves_the_known_one_in_force() -> None:
    world = WorkWorld()
    put_policy(world, Policy(max_losses=7), code_digest="abc")
    known = read_standing(world.table, WORKLOAD)
    world.set_policy("{")

    assert read_standing(world.table, WORKLOAD, known) is known
    assert (known.policy.max_losses, known.code_digest) == (7, "abc")
    without = read_standing(world.table, WORKLOAD)
    assert without.policy == Policy()
    assert without.idle_timeout == idle_timeout(Knowledge(), Policy())


def test_logs_are_read_by_epoch_with_no_text_replaced() -> None:
    world = WorkWorld()
    keep_log("j", 1, b"one \xff", world.objects)
    keep_log("j", 2, b"", world.objects)
    keep_log("j", 3, b"three", world.objects)
    keep_log("other", 1, b"not mine", world.objects)
    world.objects.put("jobs/j/logs/notes.txt", b"of a person")

    assert list(read_logs("j", world.objects)) == [
        (1, "one \N{REPLACEMENT CHARACTER}"),
        (3, "three"),
    ]


def test_a_fence_gives_up_after_8_tries_with_growing_waits() -> None:
    world = WorkWorld()
    tries: list[timedelta] = []
    began_at = world.clock.now()

    def refuse(call: PortCall) -> None:
        if call.method == "put":
            tries.append(world.clock.now() - began_at)
            raise Unreachable("no answer")

    world.before = refuse
    manifest = Manifest(job_id="j", epoch=1, owner="i-1/0", state=JobState.RUNNING)
    with pytest.raises(Unreachable):
        save_manifest(manifest, None, world.ports)

    assert len(tries) == 8
    waits = [after - before for before, after in pairwise(tries)]
    for number, wait in enumerate(waits):
        assert 0.5 <= wait / (timedelta(milliseconds=100) * 2**number) <= 1.5


@pytest.mark.parametrize("corrupt", [1, 2, 3])
def test_each_corrupt_version_may_have_been_a_claim(corrupt: int) -> None:
    world = WorkWorld()
    world.put_manifest(epoch=4)
    for number in range(corrupt):
        world.objects.put(manifest_key("j"), b"{" + b" " * number)

    fence = load_manifest("j", world.objects)

    assert fence is not None
    assert (fence.manifest.epoch, fence.epoch_floor) == (4, 4 + corrupt)


def test_a_part_of_a_hidden_epoch_raises_the_floor() -> None:
    world = WorkWorld()
    world.put_manifest(epoch=1)
    world.objects.put("jobs/j/parts/9-0-3.jsonl", b"")
    world.objects.put(manifest_key("j"), b"{")

    fence = load_manifest("j", world.objects)

    assert fence is not None
    assert fence.epoch_floor == 9


def test_with_no_part_and_no_version_the_floor_counts_versions() -> None:
    world = WorkWorld()
    world.objects.put(manifest_key("j"), b"{")

    fence = load_manifest("j", world.objects)

    assert fence is not None
    assert (fence.manifest.epoch, fence.epoch_floor) == (0, 1)
