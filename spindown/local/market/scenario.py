"""The script of a rehearsal: what the market offers, at which price, and what goes wrong when.

A scenario is a TOML file. Every time in it is counted from the start of the market, so the same
file plays the same on every run; what is random draws from `seed`.
"""

import hashlib
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from spindown.config import parse_duration
from spindown.config.validation_error import translate
from spindown.domain.offer import CapacityType
from spindown.error import BadInput
from spindown.local.market.catalogue import instance_types

Pattern = Annotated[str, Field(min_length=1)]


class ScenarioError(BadInput):
    """A scenario file cannot be played."""


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
#: USD per hour.
Price = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Part(BaseModel):
    """Frozen, and a misspelt key is an error rather than a silence."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class LognormalDuration(_Part):
    """A log-normal duration, told by two of its quantiles."""

    median: Duration
    p95: Duration

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if not timedelta(0) < self.median <= self.p95:
            message = "median must be above zero and not above p95"
            raise ValueError(message)
        return self


def _read_boot(value: object) -> object:
    return value if isinstance(value, Mapping) else parse_duration(value)


BootTime = Annotated[LognormalDuration | timedelta, BeforeValidator(_read_boot)]


class TypeMarket(_Part):
    """What one instance type costs and how fast it is; prices in USD per hour."""

    on_demand: Price | dict[str, Price]
    #: Zone name to price. A zone that is missing sells no spot capacity of this type.
    spot: dict[str, Price] = {}
    boot: BootTime | None = None
    #: Computing speed relative to 1.0, which the hypervisor enforces on the guest.
    speed: Annotated[float, Field(gt=0, le=1)] = 1.0

    def on_demand_in(self, region: str) -> float | None:
        """Return the on-demand price in `region`, or None where the type is not sold."""
        return self.on_demand.get(region) if isinstance(self.on_demand, dict) else self.on_demand


class _PoolRule(_Part):
    """A rule for the pools whose type and zone match; * and ? are wildcards."""

    type: Pattern = "*"
    zone: Pattern = "*"

    def covers(self, instance_type: str, zone: str) -> bool:
        """Tell whether the rule speaks of this type in this zone."""
        return fnmatchcase(instance_type, self.type) and fnmatchcase(zone, self.zone)


class PriceMove(_PoolRule):
    """At a given time the spot price of matching pools becomes this."""

    at: Duration
    spot: Price


class PriceWalk(_Part):
    """Every `step`, each spot price moves by a log-normal factor within bounds of on-demand."""

    step: Duration
    #: Standard deviation of the logarithm of one step's factor.
    volatility: Annotated[float, Field(gt=0, le=1)]
    #: Bounds as a share of the on-demand price.
    floor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    ceiling: Annotated[float, Field(gt=0, le=2)] = 1.0


class DryPool(_PoolRule):
    """Matching capacity pools hold only so many instances (usually none) for a while."""

    capacity_type: CapacityType | Literal["*"] = "*"
    from_: Annotated[Duration, Field(alias="from")] = timedelta(0)
    until: Duration | None = None
    capacity: Annotated[int, Field(ge=0)] = 0
    code: str = "InsufficientInstanceCapacity"


class ReclaimRule(_PoolRule):
    """EC2 takes matching spot instances back: at a time, after a running time, or at random."""

    at: Duration | None = None
    #: Counted from the moment the instance runs.
    after: Duration | None = None
    #: Poisson rate for every matching instance.
    rate_per_hour: Annotated[float, Field(gt=0)] | None = None
    #: Only the nth matching spot instance that was launched, counted from 1.
    nth: Annotated[int, Field(ge=1)] | None = None
    #: At most this many instances in all.
    count: Annotated[int, Field(ge=1)] | None = None
    #: EC2 gives two minutes; "0s" takes the instance without a word.
    notice: Duration = timedelta(minutes=2)
    #: How long before the notice a rebalance recommendation comes.
    rebalance: Duration | None = None
    #: EventBridge delivers best effort: false loses the warning event, never the metadata.
    event: bool = True
    #: How long the instance's pool stays dry after the instance has gone.
    dry_for: Duration = timedelta(0)

    @model_validator(mode="after")
    def _has_one_trigger(self) -> Self:
        triggers = [self.at, self.after, self.rate_per_hour]
        if sum(trigger is not None for trigger in triggers) != 1:
            message = "state exactly one of at, after and rate_per_hour"
            raise ValueError(message)
        return self


class Fault(_Part):
    """An EC2 action answers with an error for a while, whatever it is asked."""

    action: str
    code: str
    message: str = "This error is part of the scenario."
    status: Annotated[int, Field(ge=400, le=599)] = 400
    from_: Annotated[Duration, Field(alias="from")] = timedelta(0)
    until: Duration | None = None


class ApiRate(_Part):
    """A token bucket over all EC2 actions: the sustained rate and the burst it allows."""

    per_second: Annotated[float, Field(gt=0)]
    burst: Annotated[int, Field(ge=1)]


class Ec2Delays(_Part):
    """How long EC2 takes for what it does; short, because a rehearsal is short."""

    #: Pending until running.
    pending: Duration = timedelta(seconds=1)
    #: Running until the guest starts, for types without a boot time of their own.
    boot: BootTime = timedelta(seconds=3)
    #: Shutting-down until terminated; the vCPU quota counts until then.
    ending: Duration = timedelta(seconds=2)
    #: How long a new instance is unknown to the describe calls (EC2 is eventually consistent).
    visible: Duration = timedelta(0)
    #: How long a terminated instance stays visible; about an hour on EC2.
    forgotten: Duration = timedelta(hours=1)


class Scenario(_Part):
    """One market: its regions, prices, quotas and everything that will happen to it."""

    name: str = "unnamed"
    seed: int = 1
    regions: Annotated[tuple[str, ...], Field(min_length=1)]
    type: Annotated[dict[str, TypeMarket], Field(min_length=1)]
    #: Service Quotas code to vCPUs. A code that is missing has the default of a new AWS account.
    quota: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    delay: Ec2Delays = Ec2Delays()
    price: tuple[PriceMove, ...] = ()
    walk: PriceWalk | None = None
    dry: tuple[DryPool, ...] = ()
    interruption: tuple[ReclaimRule, ...] = ()
    fault: tuple[Fault, ...] = ()
    api_rate: ApiRate | None = None

    @model_validator(mode="after")
    def _zones_lie_in_regions(self) -> Self:
        for name, market in self.type.items():
            for zone in market.spot:
                if zone[:-1] not in self.regions:
                    message = f"type {name} has a spot price in {zone}, outside of regions"
                    raise ValueError(message)
        return self


def parse_scenario(text: str, *, origin: str) -> Scenario:
    """Read a scenario from TOML; raise `ScenarioError` naming `origin`, the key and the remedy."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError("scenario", origin, f"fix the TOML: {error}") from error
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        found = translate(error, Scenario, document)
        field = f"{origin}.{found.field}".rstrip(".")
        raise ScenarioError(field, found.value, found.remedy) from error


def load_scenario(name_or_path: str | Path) -> Scenario:
    """Load a scenario file, or one that ships with Spindown by its bare name ("demo")."""
    path = Path(name_or_path)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ScenarioError("scenario", str(path), "name a file that exists")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ScenarioError("scenario", str(path), "save it as UTF-8") from error
        return _check_types(parse_scenario(text, origin=path.name), origin=path.name)
    shipped = files("spindown.local").joinpath("scenario")
    source = shipped.joinpath(f"{path.name}.toml")
    if not source.is_file():
        names = sorted(entry.name.removesuffix(".toml") for entry in shipped.iterdir())
        raise ScenarioError(
            "scenario", str(path), f"name a .toml file or one of {', '.join(names)}"
        )
    return parse_scenario(source.read_text(encoding="utf-8"), origin=path.name)


def digest_of(scenario: Scenario) -> str:
    """Return what tells a scenario from others, wherever it was read."""
    return hashlib.sha256(scenario.model_dump_json().encode()).hexdigest()


def _check_types(scenario: Scenario, *, origin: str) -> Scenario:
    """Return the scenario if EC2 knows what it sells; nothing else could be launched."""
    known = instance_types()
    for name in scenario.type:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            remedy = f"did you mean {close[0]}?" if close else "name an instance type of EC2"
            raise ScenarioError(f"{origin}.type", name, remedy)
    return scenario
