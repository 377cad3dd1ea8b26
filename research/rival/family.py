"""The rivals, each with the setting that people have and with those that are searched."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from research.baseline import ALL
from research.baseline.rare import PendingJobs, RareBaseline
from research.rival.rule import ALARM_DELAY, backlog_size, track_from_zero
from spindown.simulator import Baseline
from spindown.simulator.baseline import PoolChoice

#: A setting in words -> the baseline that has it.
Settings = Mapping[str, Baseline]

_TARGETS = (150.0, 300.0, 450.0, 600.0)
_WAITS = (30.0, 90.0, 180.0, 270.0)
_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One rival: its customary setting, and others of its own knobs."""

    title: str
    customary: Baseline
    searched: Settings
    #: Whether it is run somewhere, or a rule of our own making or of theory's.
    is_published: bool = True


def _sized(wait: float, target: float, idle: float) -> Baseline:
    return Baseline(
        name="sized",
        title="machines for what waits",
        source="issue of this project",
        rule=backlog_size(wait, target),
        pools=PoolChoice.CHEAPEST,
        idle_seconds=idle,
        is_on_sqs=True,
    )


def _alarms() -> Iterator[tuple[str, Baseline]]:
    for target in _TARGETS:
        for idle in (0.0, _MINUTE, 5 * _MINUTE):
            yield (
                f"work off in {target:.0f} s, idle {idle:.0f} s",
                _sized(ALARM_DELAY, target, idle),
            )


def _waits() -> Iterator[tuple[str, Baseline]]:
    for wait in _WAITS:
        for target in _TARGETS:
            yield f"wait {wait:.0f} s, work off in {target:.0f} s", _sized(wait, target, 0.0)


def _batches() -> Iterator[tuple[str, Baseline]]:
    for minutes in (0, 5, 20):
        idle = minutes * _MINUTE
        yield f"scale-in after {minutes} min", replace(ALL["batch"], idle_seconds=idle)


def _trackings() -> Iterator[tuple[str, Baseline]]:
    for delay in _TARGETS:
        for looks in (1, 3):
            changed = replace(
                ALL["asg-backlog"],
                rule=track_from_zero(delay, looks),
                pools=PoolChoice.CHEAPEST,
                least=0,
                is_on_sqs=True,
            )
            yield f"from 0, delay {delay:.0f} s, out after {looks} min", changed


def _pools() -> Iterator[tuple[str, Baseline]]:
    plain = ALL["pool"]
    for threshold in (1, 4):
        for up in (1, 5):
            for down in (1, 5, 20):
                looks = PendingLooks(threshold=threshold, up=3 * up, down=3 * down)
                name = f"threshold {threshold}, up {up} min, down {down} min"
                yield name, replace(plain, rule=looks.make, pools=PoolChoice.CHEAPEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLooks:
    """Settings of a pool: a rule of its own for each fleet, since the rule counts its looks."""

    threshold: int
    up: int
    down: int

    def make(self, _scenario: object, _throughput: float) -> PendingJobs:
        """Return a rule that has counted nothing."""
        return PendingJobs(threshold=self.threshold, out_after=self.up, in_after=self.down)


def _lunas() -> Iterator[tuple[str, Baseline]]:
    for minutes in (0, 5, 10):
        yield f"idle {minutes} min", replace(ALL["luna"], idle_seconds=minutes * _MINUTE)


def _machines_each() -> Iterator[tuple[str, Baseline]]:
    for pools in (PoolChoice.ZONES, PoolChoice.CHEAPEST):
        yield f"pools {pools}", replace(ALL["vm-per-job"], pools=pools)


def _rentals() -> Iterator[tuple[str, Baseline]]:
    for kind in ("ski-rental", "ski-random", "ski-learned"):
        plain = replace(ALL[kind], is_on_sqs=True)
        yield kind, plain
        for target in (300.0, 450.0):
            assert isinstance(plain, RareBaseline)
            sized = replace(plain, rule=backlog_size(ALARM_DELAY, target))
            yield f"{kind}, work off in {target:.0f} s", sized


FAMILIES: Mapping[str, Family] = {
    "depth alarm": Family(
        title="alarm on the depth of the queue, machines by the backlog",
        customary=replace(ALL["classic-alarm"], is_on_sqs=True),
        searched=dict(_alarms()),
    ),
    "Batch": Family(title="AWS Batch", customary=ALL["batch"], searched=dict(_batches())),
    "target tracking": Family(
        title="EC2 Auto Scaling on backlog per machine",
        customary=replace(ALL["asg-backlog"], is_on_sqs=True),
        searched=dict(_trackings()),
    ),
    "VM per job": Family(
        title="a machine for each job",
        customary=ALL["vm-per-job"],
        searched=dict(_machines_each()),
    ),
    "pool": Family(
        title="a pool that grows by one while jobs wait",
        customary=ALL["pool"],
        searched=dict(_pools()),
    ),
    "Luna": Family(title="Luna", customary=ALL["luna"], searched=dict(_lunas())),
    "wait, then size": Family(
        title="once work has waited, machines for what waits, none idle",
        customary=_sized(90.0, 450.0, 0.0),
        searched=dict(_waits()),
        is_published=False,
    ),
    "ski rental": Family(
        title="idle time by the theory of ski rental",
        customary=ALL["ski-rental"],
        searched=dict(_rentals()),
        is_published=False,
    ),
}
