"""What people run instead, on the same jobs, prices, boots and reclaims.

``one-size``: a pool of one machine for whatever needs no GPU, and one for what does, each the
cheapest that the largest request fits into; a job at a time, ten idle minutes.

``cluster``: Kubernetes with Cluster Autoscaler. Pods ask for what people state. kube-scheduler
filters nodes by requests (NodeResourcesFit) and scores them LeastAllocated, its default, or
MostAllocated (kubernetes.io: Resource Bin Packing; EKS API: ScoringStrategy). Cluster Autoscaler
looks every 10 s; pending pods get nodes of their group. A node under half of its allocatable is
unneeded if its pods can be moved; a batch pod may not be (``safe-to-evict: "false"``), so that node
stays while one runs. After 10 unneeded minutes, and 10 since a node was added, it is removed
(Cluster Autoscaler FAQ: --scale-down-utilization-threshold, --scale-down-unneeded-time,
--scale-down-delay-after-add). Node groups are of large nodes, as in the field's story.

``karpenter``: no groups. Pending pods are gathered for up to 10 s and put on the cheapest machine
that takes as many of them as any does; an empty node ends at once (``consolidateAfter: 0s``), one
with a batch pod stays (``karpenter.sh/do-not-disrupt``).

``batch``: AWS Batch, BEST_FIT_PROGRESSIVE: machines large enough for the jobs in the queue, those
with the cheapest vCPU first (Batch User Guide: allocation strategies); jobs are packed by what they
ask for; a machine without a job ends at the next look, which is kinder than Batch is.

Who packs gives a job the vCPUs that it asked for. Nodes keep nothing for their system, so that what
people ask for fits; control planes cost nothing. Capacity has no end, machines are taken back as
often as ours, and what was computed is lost then, as with ours.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from research.scale.story import BOOT, ROOT_GIB, StoryJob
from spindown.domain.offer import InstanceType, extra_price_per_hour
from spindown.domain.policy import JobNeeds
from spindown.domain.shape import shape_of
from spindown.simulator import Listing
from spindown.simulator.scenario import DAY, Steps, value_at

_GIB = 1024.0
#: Cluster Autoscaler's and Karpenter's longest gathering, seconds; so often Batch looks.
_LOOK = 10.0
_BATCH_LOOK = 60.0
_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """One way of running the jobs."""

    name: str
    title: str
    #: Names of the machines that it may buy; empty: any.
    machines: tuple[str, ...] = ()
    #: The machine takes several jobs, by what they ask for.
    packs: bool = True
    #: A free node is chosen whose share that is asked for is greatest, not least.
    most_allocated: bool = False
    #: It buys the machine with the cheapest vCPU, not the one that takes most for its price.
    cheapest_vcpu: bool = False
    #: Seconds that a machine is empty before it ends, and after a launch none does.
    empty_for: float = 0.0
    after_launch: float = 0.0
    look: float = _LOOK


_LARGE = ("m7i.24xlarge", "r7i.24xlarge", "g6e.4xlarge")
RIVALS = (
    Rival(
        name="one-size",
        title="a pool of one size, and one with a GPU",
        machines=("r7i.16xlarge", "g6e.4xlarge"),
        packs=False,
        empty_for=10 * _MINUTE,
    ),
    Rival(
        name="cluster",
        title="Kubernetes on large nodes, LeastAllocated, Cluster Autoscaler",
        machines=_LARGE,
        empty_for=10 * _MINUTE,
        after_launch=10 * _MINUTE,
    ),
    Rival(
        name="cluster-packed",
        title="the same, MostAllocated",
        machines=_LARGE,
        most_allocated=True,
        empty_for=10 * _MINUTE,
        after_launch=10 * _MINUTE,
    ),
    Rival(name="karpenter", title="Kubernetes with Karpenter, any machine", most_allocated=True),
    Rival(
        name="batch",
        title="AWS Batch, BEST_FIT_PROGRESSIVE, any machine",
        cheapest_vcpu=True,
        most_allocated=True,
        look=_BATCH_LOOK,
    ),
)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a job asks for, as it was declared."""

    vcpus: float
    gib: float
    gpus: float
    vram_gib: float

    @classmethod
    def of(cls, needs: JobNeeds) -> "_Asked":
        shape, gib = shape_of(needs), float(needs.memory_gib or 0.0)
        return cls(shape.vcpus, gib, float(shape.gpus), float(needs.gpu_memory_gib or 0.0))


@dataclass(slots=True)
class _Waiting:
    job: StoryJob
    asked: _Asked
    is_new: bool = True


@dataclass(slots=True, eq=False)
class _Node:
    machine: InstanceType
    zone: str
    bought_at: float
    vcpus: float
    gib: float
    gpus: float
    up_at: float
    #: What is not asked for.
    free_vcpus: float = 0.0
    free_gib: float = 0.0
    free_gpus: float = 0.0
    jobs: dict[int, _Waiting] = field(default_factory=dict)
    empty_since: float = 0.0
    is_gone: bool = False
    #: Room on it is spoken for, where what is missing is found.
    is_reserved: bool = False
    began: dict[int, float] = field(default_factory=dict)

    def takes(self, asked: _Asked) -> bool:
        return (
            self.free_vcpus >= asked.vcpus
            and self.free_gib >= asked.gib
            and self.free_gpus >= asked.gpus
            and self.machine.gpu_memory_mib / _GIB >= asked.vram_gib
            # A node with a GPU is tainted, so that only jobs for it come.
            and (asked.gpus > 0.0) == (self.gpus > 0.0)
        )

    @property
    def asked_share(self) -> float:
        """Return the mean share of vCPUs and memory that is asked for, as the scheduler scores."""
        return 1.0 - (self.free_vcpus / self.vcpus + self.free_gib / self.gib) / 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalResult:
    """What a rival came to."""

    #: Of each day; what ends after the last one belongs to it.
    dollars_by_day: tuple[float, ...]
    jobs: int
    launches: int
    wait_p50_min: float
    wait_p95_min: float
    #: Of vCPU time that was paid: asked for by jobs.
    asked_share: float
    peak: int

    @property
    def dollars(self) -> float:
        """Return USD in all."""
        return math.fsum(self.dollars_by_day)


def run_rival(
    rival: Rival, jobs: Sequence[StoryJob], sold: Sequence[Listing], seed: int, *, spot: bool
) -> RivalResult:
    """Run all jobs to their end."""
    return _World(rival, jobs, sold, seed, spot=spot).run()


class _World:
    def __init__(
        self,
        rival: Rival,
        jobs: Sequence[StoryJob],
        sold: Sequence[Listing],
        seed: int,
        *,
        spot: bool,
    ) -> None:
        self._rival, self._jobs, self._spot = rival, jobs, spot
        self._sold = [
            x for x in sold if not rival.machines or x.instance_type.name in rival.machines
        ]
        self._zones = {(x.instance_type.name, n): z for x in sold for n, z in x.zones.items()}
        self._listed = {x.instance_type.name: x.on_demand or math.inf for x in sold}
        self._boots, self._market = Random(f"{seed}/boot"), Random(f"{seed}/market")
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._ids = count()
        self._waiting: deque[_Waiting] = deque()
        self._nodes: list[_Node] = []
        self._launched_at = -math.inf
        self._is_looking = False
        self._now = 0.0
        self._waits: list[float] = []
        self._days = [0.0] * (int(jobs[-1].at // DAY) + 1)
        self._launches = self._done = self._peak = 0
        self._paid_vcpu = self._asked_vcpu = 0.0
        self._extra = extra_price_per_hour(ROOT_GIB)

    def run(self) -> RivalResult:
        for job in self._jobs:
            self._plan(job.at, lambda job=job: self._arrive(job))  # type: ignore[misc]
        while self._events:
            self._now, _, action = heapq.heappop(self._events)
            action()
        waits = sorted(self._waits)
        return RivalResult(
            dollars_by_day=tuple(self._days),
            jobs=self._done,
            launches=self._launches,
            wait_p50_min=waits[len(waits) // 2] / 60.0,
            wait_p95_min=waits[int(len(waits) * 0.95)] / 60.0,
            asked_share=self._asked_vcpu / self._paid_vcpu,
            peak=self._peak,
        )

    def _plan(self, at: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._order), action))

    def _arrive(self, job: StoryJob) -> None:
        self._waiting.append(_Waiting(job, _Asked.of(job.kind.asked)))
        self._schedule()
        self._begin_looking()

    def _begin_looking(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            every = self._rival.look
            self._plan(math.ceil(self._now / every) * every, self._look)

    def _schedule(self) -> None:
        """Bind what waits to nodes that are up, oldest first; what fits nowhere is passed over."""
        full: set[_Asked] = set()
        left: deque[_Waiting] = deque()
        for one in self._waiting:
            node = None if one.asked in full else self._choose(one.asked)
            if node is None:
                full.add(one.asked)
                left.append(one)
            else:
                self._begin(node, one)
        self._waiting = left

    def _choose(self, asked: _Asked) -> _Node | None:
        fitting = [x for x in self._nodes if x.up_at <= self._now and self._has_room(x, asked)]
        if not fitting:
            return None
        sign = -1.0 if self._rival.most_allocated else 1.0
        return min(fitting, key=lambda x: (sign * x.asked_share, x.bought_at))

    def _has_room(self, node: _Node, asked: _Asked) -> bool:
        is_taken = bool(node.jobs) or node.is_reserved
        return node.takes(asked) and (self._rival.packs or not is_taken)

    def _begin(self, node: _Node, one: _Waiting) -> None:
        if one.is_new:
            one.is_new = False
            self._waits.append(self._now - one.job.at)
        number = next(self._ids)
        node.jobs[number], node.began[number] = one, self._now
        node.free_vcpus -= one.asked.vcpus
        node.free_gib -= one.asked.gib
        node.free_gpus -= one.asked.gpus
        share = replace(node.machine, vcpus=int(one.asked.vcpus) or node.machine.vcpus)
        seconds = one.job.takes(share if self._rival.packs else node.machine)
        self._plan(self._now + seconds, lambda: self._finish(node, number))

    def _finish(self, node: _Node, number: int) -> None:
        if number not in node.jobs:
            return
        self._free(node, number)
        self._done += 1
        self._schedule()
        if node.jobs:
            return
        node.empty_since = self._now
        self._begin_looking()

    def _free(self, node: _Node, number: int) -> _Waiting:
        one = node.jobs.pop(number)
        self._asked_vcpu += one.asked.vcpus * (self._now - node.began.pop(number))
        node.free_vcpus += one.asked.vcpus
        node.free_gib += one.asked.gib
        node.free_gpus += one.asked.gpus
        return one

    def _look(self) -> None:
        """Buy for what waits, end what is empty."""
        self._schedule()
        for node in [x for x in self._nodes if x.up_at <= self._now and not x.jobs]:
            is_quiet = self._now - self._launched_at >= self._rival.after_launch
            if self._now - node.empty_since >= self._rival.empty_for and is_quiet:
                self._end(node)
        # What boots has room for some of it.
        coming = [replace(x) for x in self._nodes if x.up_at > self._now]
        missing = [one for one in self._waiting if not self._put(one.asked, coming)]
        while missing:
            bought = self._buy([one.asked for one in missing])
            coming = [replace(bought)]
            missing = [one for one in missing if not self._put(one.asked, coming)]
        self._is_looking = bool(self._waiting or self._nodes)
        if self._is_looking:
            self._plan(self._now + self._rival.look, self._look)

    def _put(self, asked: _Asked, nodes: Sequence[_Node]) -> bool:
        """Put a request on one of some nodes to come; tell whether there was room."""
        for node in nodes:
            if self._has_room(node, asked):
                node.free_vcpus -= asked.vcpus
                node.free_gib -= asked.gib
                node.free_gpus -= asked.gpus
                node.is_reserved = True
                return True
        return False

    def _buy(self, wanted: Sequence[_Asked]) -> _Node:
        """Buy the machine that is right for the first request, and for as many as it takes."""
        options = []
        for listing in self._sold:
            price, zone = self._price(listing)
            node = self._node(listing.instance_type, zone)
            if not node.takes(wanted[0]):
                continue
            if self._rival.cheapest_vcpu:
                per_vcpu = round(price / listing.instance_type.vcpus, 4)
                options.append((per_vcpu, price, node))
                continue
            taken = sum(self._put(asked, [node]) for asked in wanted)
            options.append((price / taken, price, self._node(listing.instance_type, zone)))
        if not options:
            raise ValueError(f"no machine takes {wanted[0]}")
        node = min(options, key=lambda each: each[:2])[2]
        node.up_at = self._now + BOOT.draw(self._boots)
        self._nodes.append(node)
        self._launches += 1
        self._launched_at = self._now
        self._peak = max(self._peak, len(self._nodes))
        self._plan(node.up_at, lambda: self._come_up(node))
        rate = self._zones[node.machine.name, node.zone].reclaims_per_hour
        if self._spot and rate > 0.0:
            lives = self._market.expovariate(rate) * 3600.0
            self._plan(self._now + lives, lambda: self._end(node))
        return node

    def _node(self, machine: InstanceType, zone: str) -> _Node:
        vcpus, gib = float(machine.vcpus), machine.memory_mib / _GIB
        return _Node(
            machine=machine,
            zone=zone,
            bought_at=self._now,
            vcpus=vcpus,
            gib=gib,
            gpus=machine.gpu_count,
            up_at=math.inf,
            free_vcpus=vcpus,
            free_gib=gib,
            free_gpus=machine.gpu_count,
        )

    def _come_up(self, node: _Node) -> None:
        node.empty_since = self._now
        self._schedule()

    def _price(self, listing: Listing) -> tuple[float, str]:
        """Return the cheapest zone's USD an hour now, and the zone."""
        name = listing.instance_type.name
        if not self._spot:
            return self._listed[name], next(iter(listing.zones))
        return min((_at(zone.spot, self._now), n) for n, zone in listing.zones.items())

    def _end(self, node: _Node) -> None:
        """End a machine, or let EC2 take it: what it works on begins anew elsewhere."""
        if node.is_gone:
            return
        node.is_gone = True
        self._nodes.remove(node)
        for number in list(node.jobs):
            self._waiting.appendleft(self._free(node, number))
        self._charge(node)
        self._begin_looking()

    def _charge(self, node: _Node) -> None:
        """Pay what a machine has cost, day by day at the prices that held."""
        zone = self._zones[node.machine.name, node.zone]
        at = node.bought_at
        self._paid_vcpu += node.machine.vcpus * (self._now - at)
        while at < self._now:
            until = min((at // DAY + 1) * DAY, self._now)
            hourly = _at(zone.spot, at) if self._spot else self._listed[node.machine.name]
            day = min(int(at // DAY), len(self._days) - 1)
            self._days[day] += (hourly + self._extra) * (until - at) / 3600.0
            at = until


def _at(steps: Steps, seconds: float) -> float:
    value = value_at(steps, seconds)
    return math.inf if value is None else value
