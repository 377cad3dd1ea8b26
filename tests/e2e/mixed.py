"""Many jobs of four types, in the shares of a team's day, done for real and checked one by one."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from spindown.contract import tag
from spindown.contract.job.manifest import JobState, Manifest
from spindown.domain.past_cost import LEAST_BILLED
from spindown.ec2sim import Ec2Instance
from spindown.job.manifest_store import load_manifest
from spindown.job.result import read_records
from tests.e2e.world import HANGING, World, found

WORKLOAD = "mixed"
#: For the end of a deployment's file.
TYPES = """
[workload.mixed.requirements]
gpu_count_min = 0
gpu_count_max = 1

[[workload.mixed.policy.types]]
name = "model"
dispatch = "dedicated"
vcpus = 4
memory_gib = 24

[[workload.mixed.policy.types]]
name = "nlp"
gpus = 1

[[workload.mixed.policy.types]]
name = "forecast"
vcpus = 8

[[workload.mixed.policy.types]]
name = "sql"
dispatch = "shared"
vcpus = 1
memory_gib = 1
"""


_GPUS, _SIZES = ("g4dn", "g5", "g6", "g6e"), ("xlarge", "2xlarge")


@dataclass(frozen=True)
class Kind:
    """What the machines of a type must have."""

    #: One job in so many.
    share: float
    types: frozenset[str]


#: Of the machines of the local market: c7i.xlarge 8 GiB, m7a.2xlarge 8 vCPUs and 32 GiB.
KINDS: Mapping[str, Kind] = {
    "model": Kind(0.05, frozenset({"m7a.2xlarge"})),
    "nlp": Kind(0.1, frozenset(f"{family}.{size}" for family in _GPUS for size in _SIZES)),
    "forecast": Kind(0.1, frozenset({"m7a.2xlarge"})),
    "sql": Kind(0.75, frozenset({"c7i.xlarge", "m7a.2xlarge"})),
}


def send_mixed(world: World, count: int) -> Mapping[str, str]:
    """Send about so many jobs; return each with its type."""
    jobs = {
        f"{name}-{number}": name
        for name, kind in KINDS.items()
        for number in range(max(1, round(count * kind.share)))
    }
    for job_id, name in jobs.items():
        body = {"items": [job_id, "three"], "job_id": job_id, "type": name}
        world.send(WORKLOAD, body)
    return jobs


def _count(world: World, jobs: int) -> Counter[str] | None:
    """Return the sum of each metric in the workers' log; None: few jobs are counted yet."""
    counted = Counter[str]()
    group = world.session.workload(WORKLOAD).log_group
    for page in (
        world.client("logs").get_paginator("filter_log_events").paginate(logGroupName=group)
    ):
        for event in page["events"]:
            told = json.loads(event["message"]) if '"_aws"' in event["message"] else {}
            for directive in told.get("_aws", {}).get("CloudWatchMetrics", ()):
                for name in (one["Name"] for one in directive["Metrics"]):
                    # Of several values the format makes a list.
                    counted[name] += sum(
                        told[name] if isinstance(told[name], list) else [told[name]]
                    )
    # What a machine that was killed had not sent yet is lost.
    return counted if counted["JobsCompleted"] >= jobs / 2 else None


def check_mixed(world: World, jobs: Mapping[str, str]) -> Counter[str]:
    """Wait until all are done; check each and its machine. Return the machines of each type."""
    store, used = world.session.work_store(WORKLOAD), dict[str, list[Ec2Instance]]()

    def manifest_of(job_id: str) -> Manifest | None:
        fence = load_manifest(job_id, store)
        return fence.manifest if fence and fence.manifest.state is JobState.COMPLETED else None

    done = {job_id: found(partial(manifest_of, job_id), HANGING) for job_id in jobs}
    machines = {one.instance_id: one for one in world.instances(WORKLOAD)}
    handed_on = 0
    for job_id, name in jobs.items():
        records = read_records(job_id, store)
        assert [one["result"]["length"] for one in records] == [len(job_id), 5]
        handed_on += done[job_id].epoch - 1
        machine = machines[done[job_id].owner.partition("/")[0]]
        assert machine.instance_type in KINDS[name].types, job_id
        used.setdefault(name, []).append(machine)
    # A notice hands one on as well.
    assert handed_on <= max(1, len(jobs) / 100)
    counted = found(partial(_count, world, len(jobs)), HANGING)
    assert counted["JobsRerouted"] <= len(jobs) / 100
    # A machine belongs to one shape.
    for name, each in used.items():
        assert {one.tags[tag.SHAPE] for one in each}.isdisjoint(
            one.tags[tag.SHAPE] for other in used if other != name for one in used[other]
        )
    # One that is dedicated has one job; others may take it over within its first minute only.
    late = Counter(
        machine.instance_id
        for job_id, name in jobs.items()
        if name == "model"
        and (machine := machines[done[job_id].owner.partition("/")[0]])
        and (claimed_at := done[job_id].claimed_at)
        and claimed_at > machine.launched_at + LEAST_BILLED
    )
    assert max(late.values(), default=0) <= 1
    return Counter({name: len(set(map(id, each))) for name, each in used.items()})
