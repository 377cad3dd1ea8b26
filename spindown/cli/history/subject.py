"""What a simulation is about: a workload's policy, needs and zones, and what it has shown."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from spindown import config as configuration
from spindown.app.knowledge import read_knowledge
from spindown.app.policy import effective_policy
from spindown.cli.history.arrival import JobShape
from spindown.cli.session import Session
from spindown.config import Config
from spindown.domain.learning import (
    Knowledge,
    boot_p50,
    boot_p95,
    items_per_job,
    workload_scale,
)
from spindown.domain.offer import Requirements
from spindown.domain.policy import Policy
from spindown.error import BadInput
from spindown.simulator import Boot

#: Of a normal distribution: the deviation that 19 of 20 do not exceed.
_Z_95 = 1.645
#: What no boot is faster than, as a share of the usual one.
_LEAST_BOOT = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedWorkload:
    """A workload as far as a simulation needs it."""

    workload: str
    #: Where its settings come from, for people.
    source: str
    policy: Policy = field(default_factory=Policy)
    requirements: Requirements = field(default_factory=Requirements)
    slots: str = "per-gpu"
    root_volume_gib: int = 100
    budget_per_month: float | None = None
    #: Home first; empty: not known.
    regions: tuple[str, ...] = ()
    #: Region -> zones to buy in; empty: all that a market has.
    zones: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    boot: Boot = field(default_factory=Boot)
    knowledge: Knowledge = field(default_factory=Knowledge)

    @property
    def shape(self) -> JobShape:
        """Return what a job is taken to be: as the workload has shown, or as its policy says."""
        known = self.knowledge
        is_learned = bool(known.items_per_job or known.throughput)
        an_hour = self.policy.throughput_estimate * workload_scale(known, self.policy)
        return JobShape(
            items=items_per_job(known, self.policy),
            item_seconds=3600.0 / an_hour,
            source="as the workload has shown" if is_learned else "an estimate of the policy",
        )


def default_subject() -> SimulatedWorkload:
    """Return a workload without a file: the defaults of every setting."""
    return SimulatedWorkload(workload="work", source="the default policy")


def read_subject(path: Path, workload: str | None) -> SimulatedWorkload:
    """Return a workload of a spindown.toml, deployable or not (raises ConfigError, BadInput)."""
    config = configuration.load(path, configuration.DraftConfig, named="--policy")
    name = _pick(config, workload, path)
    chosen = config.workloads[name]
    return SimulatedWorkload(
        workload=name,
        source=str(path),
        policy=chosen.to_policy(),
        requirements=chosen.to_requirements(),
        slots=str(chosen.run.slots),
        root_volume_gib=chosen.image.root_volume_gib,
        budget_per_month=config.deployment.budget_per_month,
        regions=tuple(config.deployment.outposts),
        zones={
            region: place.zones
            for region, place in config.deployment.outposts.items()
            if place.zones
        },
    )


def _pick(config: Config, workload: str | None, path: Path) -> str:
    names = list(config.workloads)
    if workload is None and len(names) == 1:
        return names[0]
    if workload not in names:
        raise BadInput("--workload", workload, f"name one of {path}: {', '.join(names)}")
    return workload


def deployed_subject(session: Session, workload: str | None, *, live: bool) -> SimulatedWorkload:
    """Return a workload as deployed, with what it has shown.

    Args:
        session: its deployment.
        workload: its name; None: the only one.
        live: with the live edit in force.

    Raises:
        BadInput: there is none of this name, or several without one.
    """
    names = session.deployment.workloads
    if workload is None and len(names) == 1:
        workload = names[0]
    if workload is None:
        raise BadInput("--workload", None, f"name one of the deployment's: {', '.join(names)}")
    settings = session.workload(workload)
    state = session.ledger(workload).read()
    policy = settings.policy
    if live:
        policy = effective_policy(settings, session.edit(workload), state.policy).policy
    plain = SimulatedWorkload(
        workload=workload,
        source=f"deployment {session.deployment.name}",
        policy=policy,
        requirements=settings.requirements,
        slots=settings.run.slots,
        root_volume_gib=settings.run.root_volume_gib,
        budget_per_month=session.deployment.budget_per_month,
        regions=_home_first(session.deployment.region, settings.outposts),
        zones={region: tuple(place.subnets) for region, place in settings.outposts.items()},
    )
    return with_knowledge(plain, read_knowledge(state.rates, slots=settings.run.slots))


def _home_first(home: str, regions: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(regions, key=lambda region: (region != home, region)))


def with_knowledge(subject: SimulatedWorkload, knowledge: Knowledge) -> SimulatedWorkload:
    """Return a workload with what it has shown, of its boots too."""
    if not knowledge.boots:
        return replace(subject, knowledge=knowledge)
    p50 = boot_p50(knowledge, subject.policy).total_seconds()
    p95 = boot_p95(knowledge, subject.policy).total_seconds()
    return replace(subject, knowledge=knowledge, boot=fit_boot(p50, p95))


def fit_boot(p50: float, p95: float | None = None) -> Boot:
    """Return boots of these quantiles, seconds; without the second as spread out as usual."""
    least = p50 * _LEAST_BOOT
    median = max(p50 - least, 1.0)
    if p95 is None:
        return Boot(at_least=least, median=median)
    sigma = math.log(max((p95 - least) / median, 1.0)) / _Z_95
    return Boot(at_least=least, median=median, sigma=sigma)
