"""Facts about account and market: each is read once, or says why it could not be read.

Credentials come first. Without them every other answer would be the same error.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from spindown.config.deployment import bootstrap_parameter
from spindown.contract import row as rows
from spindown.contract.codec import decode
from spindown.contract.image import DISK_KEY
from spindown.contract.row import BreakerRow, BudgetRow, RateRow
from spindown.domain.boot import BootPhase
from spindown.domain.offer import Catalogue, InstanceType, Quota, SpotPrice
from spindown.domain.requirement import misfit
from spindown.error import (
    ContractError,
)
from spindown.ledger import Ledger, account_key, is_lock_damaged
from spindown.ledger.knowledge import read_phases
from spindown.ledger.partition import Partition
from spindown.operate.doctor.subject import DoctorCase, DoctorSubject
from spindown.operate.doctor.unknown import Unknown, ask
from spindown.port import (
    Account,
    AccountPlan,
    Caller,
    ImageView,
    Market,
    SubnetView,
    SubnetWay,
    Table,
    VpcCount,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionFacts:
    """What one region offers and allows."""

    catalogue: Catalogue | Unknown
    spot_prices: Sequence[SpotPrice] | Unknown
    #: Class, such as "G/Spot" -> quota.
    quotas: Mapping[str, Quota] | Unknown
    subnets: Sequence[SubnetView] | Unknown
    #: SSM parameter -> the image that it names.
    images: Mapping[str, ImageView | Unknown]


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacles:
    """What in the ledger stops launches."""

    #: (workload, region) -> its open breaker; home is "".
    breakers: Mapping[tuple[str, str], BreakerRow]
    #: Workloads whose lock row is damaged.
    locks: frozenset[str]
    #: USD spent and reserved this month; None: the row cannot be read.
    committed: float | None
    #: Then the row as it should be, by the rows of the workloads.
    month: BudgetRow = field(default_factory=BudgetRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that the checks read."""

    at: datetime
    caller: Caller | Unknown
    plan: AccountPlan | Unknown | None = None
    has_spot_role: bool | Unknown = False
    concurrency: int | Unknown = 0
    #: Region -> version of its CDK bootstrap; empty: not asked.
    bootstraps: Mapping[str, str | Unknown] = field(default_factory=dict)
    #: Whether a dashboard has the name of what is not deployed here.
    has_namesake: bool = False
    #: Region in which a deploy will make a VPC -> how many there are.
    vpcs: Mapping[str, VpcCount | Unknown] = field(default_factory=dict)
    regions: Mapping[str, RegionFacts] = field(default_factory=dict)
    #: Prefix -> why it cannot be read; None: it can be.
    inputs: Mapping[str, Unknown | None] = field(default_factory=dict)
    #: The same by the name of a secret, and by the ARN of a key.
    secrets: Mapping[str, Unknown | None] = field(default_factory=dict)
    keys: Mapping[str, Unknown | None] = field(default_factory=dict)
    #: Why the webhook's function cannot read its secret, or before a deploy, why that is not there;
    #: else whether its alarm knows that no text has failed (None: nothing is deployed).
    webhook: bool | Unknown | None = None
    #: Bucket of a source -> whether it sends its events to EventBridge.
    sources: Mapping[str, bool | Unknown] = field(default_factory=dict)
    #: Region -> why EBS has no default key there; None: it has one.
    disk_keys: Mapping[str, Unknown | None] = field(default_factory=dict)
    #: ARN of an account's own key of disks -> whether EC2's role for spot may use it.
    lent_to_spot: Mapping[str, bool | Unknown] = field(default_factory=dict)
    #: Region -> what its subnets reach, by their ids.
    ways: Mapping[str, Mapping[str, SubnetWay] | Unknown] = field(default_factory=dict)
    #: None: there is no ledger.
    obstacles: Obstacles | Unknown | None = None
    #: Workload -> jobs without a message, at least; empty: nothing is deployed.
    lost: Mapping[str, int | Unknown] = field(default_factory=dict)
    #: Workload -> the seconds of each phase of its last boots; empty: nothing is deployed.
    boots: Mapping[str, Mapping[BootPhase, tuple[float, ...]] | Unknown] = field(
        default_factory=dict
    )


def gather(
    subject: DoctorSubject,
    begun: Facts,
    *,
    account: Account,
    market: Market,
    table: Table | None = None,
    count_lost: Callable[[str], int] | None = None,
    try_webhook: Callable[[], bool] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Facts:
    """Read all facts about a subject; a failure is a fact too.

    ``begun`` has the time and the caller, without whom nothing is read. ``tell`` hears what is read
    next.
    """
    at, caller = begun.at, begun.caller
    if isinstance(caller, Unknown):
        return begun
    home = subject.region
    inputs = sorted({prefix for case in subject.cases for prefix in case.inputs})
    secrets = sorted({name for case in subject.cases for name in case.secrets})
    keys = sorted({arn for case in subject.cases for arn in case.keys})
    sources = sorted({bucket for case in subject.cases for bucket in case.sources})
    if subject.is_on_aws:
        tell("asking the account for its plan, roles and limits")
    facts = Facts(
        at=at,
        caller=caller,
        plan=ask(account.plan) if subject.is_on_aws else None,
        has_spot_role=ask(account.has_spot_role) if subject.is_on_aws else False,
        concurrency=ask(lambda: account.concurrency(region=home)),
        bootstraps={
            region: ask(
                partial(account.parameter, bootstrap_parameter(subject.qualifier), region=region)
            )
            for region in (() if subject.is_deployed else subject.regions)
        },
        vpcs={
            region: ask(partial(account.vpcs, region=region))
            for region in (() if subject.is_deployed else subject.regions)
            if region not in subject.networks
        },
    )
    regions = {}
    for region in subject.regions:
        tell(f"reading types, prices, quotas and images of {region}")
        regions[region] = _gather_region(region, subject, account=account, market=market, at=at)
    asked = "inputs, secrets, keys, sources and ways out of subnets"
    tell(f"asking for {asked if subject.is_on_aws else 'inputs and secrets'}")
    facts = replace(
        facts,
        regions=regions,
        inputs={prefix: _try_input(account, prefix) for prefix in inputs},
        secrets={name: ask(partial(account.try_secret, name, region=home)) for name in secrets},
        keys={arn: ask(partial(account.try_key, arn)) for arn in keys},
        webhook=ask(try_webhook or partial(account.try_secret, subject.webhook, region=home))
        if subject.webhook
        else None,
        sources={bucket: ask(partial(account.sends_events, bucket)) for bucket in sources},
        disk_keys={
            region: ask(
                partial(account.try_key, subject.disk_keys.get(region) or _disk_key(caller, region))
            )
            for region in (subject.regions if subject.is_on_aws else ())
        },
        lent_to_spot={
            arn: ask(partial(account.lends_key_to_spot, arn)) for arn in subject.disk_keys.values()
        },
        ways={
            region: ask(partial(account.ways_out, sorted(subject.subnets(region)), region=region))
            for region in subject.regions
        },
    )
    if table is not None:
        tell("reading what is deployed")
    return replace(
        facts,
        obstacles=None if table is None else ask(partial(_read_obstacles, subject, table, at)),
        boots={
            case.name: ask(partial(_read_boots, table, case.name))
            for case in subject.cases
            if table is not None and case.is_deployed
        },
        lost={
            case.name: ask(partial(count_lost, case.name))
            for case in subject.cases
            if count_lost is not None and case.is_deployed
        },
    )


def _read_boots(table: Table, workload: str) -> Mapping[BootPhase, tuple[float, ...]]:
    found = Partition(table.query(rows.control_partition(workload), rows.BOOT_PHASE))
    return read_phases(found.all_of(RateRow, rows.RATE))


def _read_obstacles(subject: DoctorSubject, table: Table, at: datetime) -> Obstacles:
    """Read each deployed workload once, and the month once."""
    breakers: dict[tuple[str, str], BreakerRow] = {}
    for case in subject.cases:
        found = table.query(rows.control_partition(case.name), rows.BREAKER)
        for name, row in Partition(found).named(BreakerRow, rows.BREAKER).items():
            if row.open_until is not None and row.open_until > at:
                breakers[case.name, name.removeprefix("#")] = row
    locks = frozenset(
        case.name
        for case in subject.cases
        if (lock := table.get(Ledger(table, case.name).key(rows.LOCK))) is not None
        and is_lock_damaged(lock, at)
    )
    month = table.get(account_key(rows.budget_sort_key(at)))
    try:
        committed = decode(BudgetRow, month or {}).committed
    except ContractError:
        sums = _add_up(subject, table, at)
        return Obstacles(breakers=breakers, locks=locks, committed=None, month=sums)
    return Obstacles(breakers=breakers, locks=locks, committed=committed)


def _add_up(subject: DoctorSubject, table: Table, at: datetime) -> BudgetRow:
    """Return the month's sum over all workloads, as far as their rows can be read."""
    views = [Ledger(table, case.name).read() for case in subject.cases]
    days = ((name, day) for view in views for name, day in view.spend.items())
    dollars = sum(day.dollars for name, day in days if name.startswith(f"{at:%Y-%m}-"))
    month = rows.budget_sort_key(at)
    launches = (launch for view in views for launch in view.launches.values())
    reserved = (x.reserved_usd for x in launches if rows.budget_sort_key(x.intended_at) == month)
    return BudgetRow(dollars=dollars, committed=dollars + sum(reserved))


def _disk_key(caller: Caller, region: str) -> str:
    """Return the ARN of EBS's default key.

    In a region where EBS was never used, the first question for the key creates it (AWS KMS API
    Reference, "DescribeKey").
    """
    partition = caller.arn.split(":")[1]
    return f"arn:{partition}:kms:{region}:{caller.account}:{DISK_KEY}"


def _gather_region(
    region: str, subject: DoctorSubject, *, account: Account, market: Market, at: datetime
) -> RegionFacts:
    cases = [case for case in subject.cases if region in case.places]
    parameters = {need.parameter for case in cases for need in case.images}
    catalogue = ask(lambda: _read_catalogue(region, market, at))
    return RegionFacts(
        catalogue=catalogue,
        spot_prices=ask(lambda: _read_spot_prices(region, cases, catalogue, market)),
        quotas=ask(lambda: market.quotas(region=region)),
        subnets=ask(lambda: account.subnets(sorted(subject.subnets(region)), region=region)),
        images={name: _find_image(name, region, account) for name in sorted(parameters)},
    )


def _read_catalogue(region: str, market: Market, at: datetime) -> Catalogue:
    # A usual price stands in where it is not known, as in the catalogue that the functions read.
    volume = ask(lambda: market.volume_price(region=region))
    return Catalogue(
        taken_at=at,
        instance_types={kind.name: kind for kind in market.instance_types(region=region)},
        offerings={region: market.offerings(region=region)},
        on_demand={region: market.on_demand_prices(region=region)},
        volume_price={} if isinstance(volume, Unknown) else {region: volume},
    )


def _read_spot_prices(
    region: str, cases: Sequence[DoctorCase], catalogue: Catalogue | Unknown, market: Market
) -> Sequence[SpotPrice]:
    if isinstance(catalogue, Unknown):
        return ()
    offered = set[str]().union(*catalogue.offerings[region].values())
    fitting = [
        kind.name
        for kind in catalogue.instance_types.values()
        if kind.name in offered and _fits_any(kind, cases)
    ]
    return market.spot_prices(region=region, instance_types=fitting)


def _fits_any(kind: InstanceType, cases: Sequence[DoctorCase]) -> bool:
    return any(misfit(kind, case.requirements) is None for case in cases)


def _find_image(parameter: str, region: str, account: Account) -> ImageView | Unknown:
    return ask(lambda: account.image(account.parameter(parameter, region=region), region=region))


def _try_input(account: Account, prefix: str) -> Unknown | None:
    return ask(lambda: account.try_input(prefix))
