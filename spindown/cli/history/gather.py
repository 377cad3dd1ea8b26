"""Gather what a simulation needs: a workload, its traffic and the prices, as the options ask."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from spindown import config as configuration
from spindown.cli.history.arrival import (
    GENERATORS,
    ArrivalHistory,
    JobShape,
    check_span,
    generate,
    keep_last,
    read_arrivals,
    read_queue,
)
from spindown.cli.history.option import CLOUDWATCH, LIVE, SAMPLE, USUAL_FILE, SimulationOptions
from spindown.cli.history.price import (
    Buyer,
    MarketHistory,
    made_up_prices,
    pay,
    read_live,
    read_prices,
)
from spindown.cli.init import FIRST_WORKLOAD, first_document
from spindown.cli.session import Session, open_session
from spindown.config import Config, parse_duration
from spindown.control.policy_edit import effective_policy
from spindown.domain.account_pricing import Pricing
from spindown.domain.learning import (
    Knowledge,
    boot_p50,
    boot_p95,
    items_per_job,
    reference_throughput,
)
from spindown.domain.offer import HOURS_PER_MONTH, InstanceRequirements
from spindown.domain.policy import Policy
from spindown.domain.relative_throughput import reference_machine
from spindown.error import BadInput
from spindown.ledger.knowledge import read_knowledge, starts_baked
from spindown.simulator import BOOTS, Boot, SimScenario, fit_boot
from spindown.simulator.scenario import DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedWorkload:
    """A workload as far as a simulation needs it."""

    workload: str
    #: Where its settings come from, for people.
    source: str
    policy: Policy = field(default_factory=Policy)
    requirements: InstanceRequirements = field(default_factory=InstanceRequirements)
    slots: str = "per-gpu"
    root_volume_gib: int = 100
    budget_per_month: float | None = None
    #: None: EC2's prices are paid.
    pricing: Pricing | None = None
    #: Home first; empty: not known.
    regions: tuple[str, ...] = ()
    #: Region -> zones to buy in; empty: all that a market has.
    zones: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    boot: Boot = BOOTS["bootstrap"]
    knowledge: Knowledge = field(default_factory=Knowledge)

    @property
    def shape(self) -> JobShape:
        """Return the size of a job: as measured, or as the policy estimates."""
        known = self.knowledge
        is_learned = bool(known.jobs.jobs or known.throughput)
        an_hour = reference_throughput(known, self.policy, without_gpu=self.is_without_gpu)
        return JobShape(
            items=items_per_job(known, self.policy),
            item_seconds=3600.0 / an_hour,
            source="as the workload has shown" if is_learned else "an estimate of the policy",
            reference=self.reference,
        )

    @property
    def reference(self) -> str:
        """Return the machine on which times and hours of its work are told."""
        return reference_machine(without_gpu=self.is_without_gpu)

    @property
    def is_without_gpu(self) -> bool:
        """Tell whether its work needs no GPU."""
        return not self.requirements.allows_gpu


def default_subject() -> SimulatedWorkload:
    """Return a workload without a file: as ``spindown init`` writes it, in any zone, unbudgeted."""
    config = configuration.parse(first_document(), configuration.DraftConfig)
    subject = _subject(config, FIRST_WORKLOAD, "as `spindown init` writes it")
    return replace(subject, budget_per_month=None, regions=(), zones={})


def read_subject(path: Path, workload: str | None) -> SimulatedWorkload:
    """Return a workload of a spindown.toml, deployable or not (raises ConfigError, BadInput)."""
    config = configuration.load(path, configuration.DraftConfig, named="--policy")
    return _subject(config, _pick(config, workload, path), str(path))


def _subject(config: Config, name: str, source: str) -> SimulatedWorkload:
    chosen = config.workloads[name]
    return SimulatedWorkload(
        workload=name,
        source=source,
        policy=chosen.to_policy(),
        requirements=chosen.to_requirements(),
        slots=str(chosen.run.slots),
        root_volume_gib=chosen.image.root_volume_gib,
        boot=BOOTS["baked" if chosen.image.mode in {"bake", "ami"} else "bootstrap"],
        budget_per_month=config.deployment.budget_per_month,
        pricing=config.pricing.of(name, config.deployment.region),
        regions=tuple(config.deployment.regions),
        zones={
            region: place.zones
            for region, place in config.deployment.regions.items()
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
    """Return a workload as deployed, with what was measured.

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
    home, now = session.deployment.region, session.aws.clock.now()
    is_baked = starts_baked(state.images, settings, home, now)
    plain = SimulatedWorkload(
        workload=workload,
        source=f"deployment {session.deployment.name}",
        policy=policy,
        requirements=settings.requirements,
        slots=settings.run.slots,
        root_volume_gib=settings.run.root_volume_gib,
        budget_per_month=session.deployment.budget_per_month,
        pricing=settings.pricing,
        regions=_home_first(home, settings.regions),
        zones={region: tuple(place.subnets) for region, place in settings.regions.items()},
        boot=BOOTS["baked" if is_baked else "bootstrap"],
    )
    return with_knowledge(
        plain, read_knowledge(state.rates, slots=settings.run.slots, is_baked=is_baked)
    )


def _home_first(home: str, regions: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(regions, key=lambda region: (region != home, region)))


def with_knowledge(subject: SimulatedWorkload, knowledge: Knowledge) -> SimulatedWorkload:
    """Return a workload with what was measured, its boots included."""
    if not knowledge.boots:
        return replace(subject, knowledge=knowledge)
    p50 = boot_p50(knowledge, subject.policy).total_seconds()
    p95 = boot_p95(knowledge, subject.policy).total_seconds()
    return replace(subject, knowledge=knowledge, boot=fit_boot(p50, p95))


#: Shorter traffic shows no week, so that a month of it is a guess.
_WEEK = 7 * DAY
_MONTH = HOURS_PER_MONTH * 3600.0


class Connect(Protocol):
    """Connects to a deployment by file or by name."""

    def __call__(self, config: Path, *, deployment: str | None, local: bool, named: str) -> Session:
        """Connect (raises BadInput)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """All inputs of a simulation."""

    subject: SimulatedWorkload
    traffic: ArrivalHistory
    prices: MarketHistory
    seed: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was assumed, for people."""
        boot = self.subject.boot
        half = boot.at_least + boot.median
        booted = f"half of all instances take a job within {half:.0f} s of their launch"
        return (*self.traffic.notes, *self._repeated(), *self.prices.notes, booted)

    def _repeated(self) -> Iterator[str]:
        """Say how often short traffic is repeated to fill a month."""
        if self.traffic.length < _WEEK:
            times = f"a month is taken for {_MONTH / self.traffic.length:,.0f} times this traffic"
            yield f"{times}; divide by that if it comes once a month"

    @property
    def scenario(self) -> SimScenario:
        """Return the world to simulate."""
        subject, traffic = self.subject, self.traffic
        return SimScenario(
            name=subject.workload,
            arrivals=traffic.arrivals,
            listings=self.prices.listings,
            length=traffic.length,
            start=traffic.start,
            boot=subject.boot,
            requirements=subject.requirements,
            budget_per_month=subject.budget_per_month,
            slots=subject.slots,
            root_volume_gib=subject.root_volume_gib,
        )


def gather(options: SimulationOptions, connect: Connect = open_session) -> Gathered:
    """Read settings, traffic and prices.

    Args:
        options: the options of a command.
        connect: connects to a deployment, if one must be asked.

    Raises:
        BadInput: names the option or the line and the remedy; besides, the errors of AWS.
    """
    session = _open(options, connect) if options.needs_deployment else None
    subject = _find_subject(options, session)
    if options.boot is not None:
        subject = replace(subject, boot=_named_boot(options.boot))
    traffic = _find_traffic(options, subject, session)
    if options.last_days is not None:
        traffic = keep_last(traffic, options.last_days)
    check_span(traffic)
    needs = subject.requirements
    if options.has_denied_families:
        needs = replace(needs, families_denied=frozenset())
    buyer = Buyer(
        requirements=needs,
        slots=subject.slots,
        policy=subject.policy,
        knowledge=subject.knowledge,
        reclaims_per_hour=options.reclaims_per_hour,
    )
    prices = pay(_find_prices(options, subject, session, traffic, buyer), subject.pricing)
    if subject.zones and options.prices != LIVE:
        named = ", ".join(zone for zones in subject.zones.values() for zone in zones)
        unused = f"the zones of the settings ({named}) are not used: the prices bring their own"
        prices = replace(prices, notes=(*prices.notes, unused))
    return Gathered(subject=subject, traffic=traffic, prices=prices, seed=options.seed)


def _open(options: SimulationOptions, connect: Connect) -> Session:
    if options.policy is None and options.deployment is None and not USUAL_FILE.exists():
        option, value = (
            ("--arrivals", options.arrivals)
            if options.arrivals == CLOUDWATCH
            else ("--prices", options.prices)
        )
        remedy = f"go where {USUAL_FILE} is, name a --deployment, or give a file or made-up ones"
        raise BadInput(option, value, remedy)
    config = options.policy or USUAL_FILE
    return connect(config, deployment=options.deployment, local=options.local, named="--policy")


def _find_subject(options: SimulationOptions, session: Session | None) -> SimulatedWorkload:
    is_file = options.policy is not None or (options.deployment is None and USUAL_FILE.exists())
    if session is None:
        path = options.policy or USUAL_FILE
        if is_file:
            return read_subject(path, options.workload)
        if options.workload is not None:
            remedy = f"name its file with --policy: there is no {USUAL_FILE} here"
            raise BadInput("--workload", options.workload, remedy)
        return default_subject()
    deployed = deployed_subject(session, options.workload, live=options.is_live_policy)
    if not is_file or options.is_live_policy:
        return deployed
    # The file says what would be deployed, the deployment what was measured.
    file = read_subject(options.policy or USUAL_FILE, deployed.workload)
    return with_knowledge(replace(file, zones=file.zones or deployed.zones), deployed.knowledge)


def _find_traffic(
    options: SimulationOptions, subject: SimulatedWorkload, session: Session | None
) -> ArrivalHistory:
    if options.arrivals in GENERATORS:
        return generate(options.arrivals, options.seed)
    if options.arrivals == CLOUDWATCH and session is not None:
        url = session.workload(subject.workload).queue_url
        return read_queue(
            session.aws.traffic(),
            url.rpartition("/")[2],
            subject.shape,
            until=session.aws.clock.now(),
            days=options.days,
        )
    return read_arrivals(Path(options.arrivals), subject.shape)


def _find_prices(
    options: SimulationOptions,
    subject: SimulatedWorkload,
    session: Session | None,
    traffic: ArrivalHistory,
    buyer: Buyer,
) -> MarketHistory:
    if options.prices == SAMPLE:
        return made_up_prices(options.seed, traffic, buyer, subject.regions)
    if options.prices == LIVE and session is not None:
        market = session.aws.market()
        now = session.aws.clock.now()
        return read_live(market, market, subject.zones, traffic, buyer, now=now)
    return read_prices(Path(options.prices), traffic, buyer)


def _named_boot(text: str) -> Boot:
    if text in BOOTS:
        return BOOTS[text]
    try:
        length = parse_duration(text).total_seconds()
    except ValueError as exc:
        raise BadInput("--boot", text, f"{exc}, or {', '.join(BOOTS)}") from exc
    if length < 1.0:
        raise BadInput("--boot", text, "give at least 1s")
    return fit_boot(length)
