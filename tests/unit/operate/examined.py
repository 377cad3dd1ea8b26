"""A deployment that is well, in memory; a case takes one thing away and looks again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from spindown.config import parse
from spindown.contract.name import DEPLOYMENT_ALARMS, WORKLOAD_ALARMS
from spindown.contract.rehearsal import (
    Rehearsal,
    RehearsalRequest,
    RehearsedLaunch,
    RehearsedPool,
)
from spindown.contract.settings import (
    DeploymentSettings,
    RegionSettings,
    RunSettings,
    TemplateRef,
    WorkloadSettings,
)
from spindown.domain.policy import Policy
from spindown.error import NotFound, SpindownError
from spindown.memory import (
    MemoryAccount,
    MemoryClock,
    MemoryMarket,
    MemorySettingsStore,
    MemoryTable,
)
from spindown.operate.doctor.examine import DoctorPorts, examine
from spindown.operate.doctor.finding import Finding, Report, Severity
from spindown.operate.doctor.subject import DoctorSubject, find_subject, from_config
from spindown.port import AlarmView, ImageView, RefusalKind, SubnetView, Subscriber, Table
from tests.builders import NOW, a_type

REGION = "us-west-2"
ZONES = ("us-west-2a", "us-west-2b")
IMAGE = "/images/x86_64"
TEMPLATE = TemplateRef(id="lt-1", version="3")
G_SPOT = "quota G/Spot in us-west-2 (L-3819A6DF)"
G_ON_DEMAND = "quota G/OnDemand in us-west-2 (L-DB2E81BA)"
TOPIC = f"arn:aws:sns:{REGION}:123456789012:demo--alarms"
SCHEDULES = ("demo--classify--tick", "demo--offers")
SPARE_TICK = "demo--classify--tick"
ALARMS = (
    *(f"demo--{name}" for name in DEPLOYMENT_ALARMS),
    *(f"demo--classify--{name}" for name in WORKLOAD_ALARMS),
)
WELL = AlarmView(state="OK", since=NOW - timedelta(days=9), acts=True)
ADA = Subscriber(protocol="email", endpoint="ada@example.com", is_confirmed=True)
BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"


def a_config(**workload: Any) -> dict[str, Any]:
    """Return spindown.toml with one workload, ``classify``."""
    base: dict[str, Any] = {
        "run": {"entrypoint": "job:run", "code": "."},
        "image": {"mode": "ami", "parameters": {"x86_64": IMAGE}, "root_volume_gib": 100},
        "inputs": ["s3://documents/scans/"],
    }
    return {
        "deployment": {"name": "demo", "region": REGION, "zones": list(ZONES)},
        "workload": {"classify": base | workload},
    }


@dataclass
class Examined:
    """What an examination sees: all is well until a case changes it."""

    config: Mapping[str, Any] = field(default_factory=a_config)
    policy: Policy = field(default_factory=Policy)
    is_deployed: bool = True
    budget_per_month: float | None = None
    #: Workload -> jobs that have no message; an error: nobody may look.
    lost: dict[str, int | SpindownError] = field(default_factory=dict)
    #: EC2's code and its kind for a pool that the scaler rehearses; None: it would launch.
    refuse: Callable[[RehearsedPool], tuple[str, RefusalKind] | None] = lambda _: None
    #: Why the webhook's function cannot read its secret; None: it can.
    unread_webhook: SpindownError | None = None
    #: Whether its alarm knows that no text has failed.
    is_webhook_heard: bool = True
    #: Dashboards of the account.
    dashboards: set[str] = field(default_factory=set)
    #: Why the scaler's answer is short, or why there is none.
    ended: str | SpindownError = ""

    def __post_init__(self) -> None:
        self.clock = MemoryClock(NOW)
        self.rehearsed: list[RehearsedPool] = []
        self.table: Table = MemoryTable(self.clock)
        self.market = MemoryMarket(self.clock)
        for name, price in (("g4dn.xlarge", 0.526), ("g6.xlarge", 0.805)):
            self.market.offer(
                a_type(name), region=REGION, zones=ZONES, on_demand=price, spot=price / 2
            )
        for code in ("L-3819A6DF", "L-DB2E81BA"):
            self.market.limit(code, 64, region=REGION)
        image = ImageView(
            image_id="ami-1",
            architecture="x86_64",
            state="available",
            root_gib=40,
            root_device="/dev/sda1",
        )
        self.account = MemoryAccount(
            parameters={(REGION, IMAGE): "ami-1", (REGION, BOOTSTRAP): "21"},
            images={(REGION, "ami-1"): image},
            schedules={(REGION, name): True for name in SCHEDULES},
            rules={(REGION, SPARE_TICK): True},
            alarm_views={(REGION, name): WELL for name in ALARMS},
            topics={TOPIC: (ADA,)},
        )
        for zone in ZONES:
            self.set_subnet(zone, free_addresses=250)
        self.settings = MemorySettingsStore(
            self.clock,
            DeploymentSettings(
                name="demo",
                region=REGION,
                table="demo--ledger",
                bucket="demo-bucket",
                workloads=("classify",),
                scaler="demo--scaler",
                topic=TOPIC,
                budget_per_month=self.budget_per_month,
            ),
            {"classify": self._workload()},
        )

    def _workload(self) -> WorkloadSettings:
        planned = parse(self.config).workloads["classify"]
        return WorkloadSettings(
            name="classify",
            queue_url="https://sqs/q",
            dlq_url="https://sqs/d",
            log_group="/spindown/demo/classify",
            regions={
                REGION: RegionSettings(
                    subnets={zone: subnet_of(zone) for zone in ZONES},
                    templates={"x86_64": TEMPLATE},
                )
            },
            run=RunSettings(),
            requirements=planned.to_requirements(),
            policy=self.policy,
        )

    def set_subnet(self, zone: str, *, free_addresses: int, really_in: str = "") -> None:
        subnet = SubnetView(
            subnet_id=subnet_of(zone),
            zone=really_in or zone,
            free_addresses=free_addresses,
            vpc_id="vpc-1",
        )
        self.account.networks[REGION, subnet.subnet_id] = subnet

    def set_image(self, **changes: Any) -> None:
        self.account.images[REGION, "ami-1"] = replace(
            self.account.images[REGION, "ami-1"], **changes
        )

    def subject(self) -> DoctorSubject:
        planned = from_config(parse(self.config))
        return find_subject(planned, self.settings) if self.is_deployed else planned

    def report(self) -> Report:
        subject = self.subject()
        return examine(subject, self.ports(subject))

    def ports(self, subject: DoctorSubject) -> DoctorPorts:
        return DoctorPorts(
            account=self.account,
            market=self.market,
            clock=self.clock,
            table=self.table if subject.table else None,
            count_lost=self._count_lost if subject.table else None,
            rehearse=self._rehearse if subject.is_deployed else None,
            try_webhook=self._try_webhook if subject.is_deployed else None,
            find_dashboard=self._find_dashboard,
        )

    def _count_lost(self, workload: str) -> int:
        found = self.lost.get(workload, 0)
        if isinstance(found, SpindownError):
            raise found
        return found

    def _find_dashboard(self) -> None:
        if "demo" not in self.dashboards:
            raise NotFound("no dashboard demo")

    def _try_webhook(self) -> bool:
        if self.unread_webhook is not None:
            raise self.unread_webhook
        return self.is_webhook_heard

    def _rehearse(self, request: RehearsalRequest) -> Rehearsal:
        if isinstance(self.ended, SpindownError):
            raise self.ended
        self.rehearsed += request.pools
        launches = []
        for pool in request.pools:
            code, kind = self.refuse(pool) or ("", "")
            launches.append(RehearsedLaunch(pool=pool, code=code, kind=kind, said="no"))
        return Rehearsal(launches=tuple(launches), ended=self.ended)

    def finding(self, what: str) -> Finding:
        """Return the one line that begins with ``what``."""
        (found,) = [f for f in self.report().findings if f.what.startswith(what)]
        return found

    def severity(self, what: str) -> Severity:
        return self.finding(what).severity


def subnet_of(zone: str) -> str:
    return f"subnet-{zone[-1]}"
