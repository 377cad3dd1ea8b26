"""The local system: the deployed template, the market and the guests, in this process."""

import logging
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
from botocore.config import Config as ClientConfig

import spindown
from spindown import config
from spindown.contract.codec import encode
from spindown.ec2sim import Ec2Instance
from spindown.error import BadInput
from spindown.local import STATE, TICK, emulator, environment
from spindown.local.deployment import (
    bootstrap,
    deploy,
    destroy,
    note_deployed,
    put_dashboards,
    stacks_of,
)
from spindown.local.gateway import METADATA_PATH, Gateway, Router, bind
from spindown.local.hypervisor import GuestSetup, Hypervisor
from spindown.local.market import (
    LocalMarket,
    MarketApp,
    MetadataApp,
    RoleCredentials,
    Scenario,
    digest_of,
    load_scenario,
)
from spindown.local.market.wire.asgi import App
from spindown.local.monitor import Monitor
from spindown.local.reaper import TOKEN_VARIABLE, Reaper
from spindown.local.schedule import Ticker, pulse
from spindown.local.state import StateDirectory
from spindown.local.status import (
    CHANGED_PATH,
    STATUS_PATH,
    WITH_JOBS_PATH,
    SystemStatus,
    find_with_jobs,
    function_names,
    instance_statuses,
    queue_statuses,
)

_LOGGER = logging.getLogger(__name__)

WORKER = (sys.executable, "-m", "spindown.worker")

#: How often the market's time passes and guests are looked after.
_SCHEDULE_SECONDS = 0.1
#: Queue metrics are published and alarms evaluated a few times in each local minute.
_LOOKS_A_TICK = 4
_INVOCATION_SECONDS = 900
_CREDENTIALS_FOR = timedelta(hours=6)
#: How long machines that are to begin anew may take to end, and how much of that to go on working.
_SHUT_DOWN_SECONDS, _STOP_GRACE_SECONDS = 5.0, 1.0
#: All that a guest gets of the environment of this process.
_GUEST_KNOWS = frozenset({"PATH", "LANG", "LC_ALL", "TZ"})


def _has_containers(loaded: config.Config) -> bool:
    return any(one.run.image for one in loaded.workloads.values())


class LocalSystem:
    """A context: up when entered, and nothing of it is left when it is left."""

    def __init__(
        self,
        config_path: Path,
        *,
        scenario: Scenario | str | Path = "default",
        state: Path | None = None,
        port: int | None = None,
        tick: timedelta = TICK,
        guest: Sequence[str] = WORKER,
        credentials: Callable[[Ec2Instance], RoleCredentials] | None = None,
        emulate: Callable[[int], App] = emulator.load,
    ) -> None:
        """Prepare the system for a spindown.toml.

        Args:
            config_path: The deployment to run.
            scenario: What the market does: a `Scenario`, a file, or the name of a shipped one.
            state: Directory for logs and generated files; `.spindown` beside the caller.
            port: Loopback port of the endpoint; None takes the usual one, or any that is free.
            tick: How long a minute of alarms and schedules takes here.
            guest: The program that every instance runs.
            credentials: What an instance finds in its metadata; None gives it leave for all.
            emulate: Loads what answers for all services but the market's, on a port.
        """
        loaded = config.load(config_path, named="--config")
        deployment = loaded.deployment
        self._has_containers = _has_containers(loaded)
        self.config_path = config_path
        self.deployment = deployment.name
        self.region = deployment.region
        self._qualifier = deployment.qualifier
        #: Where workers may run; home comes first.
        self.regions = tuple(deployment.regions)
        self.scenario = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
        for region in self.regions:
            if region not in self.scenario.regions:
                known = ", ".join(self.scenario.regions)
                field = "deployment.region" if region == self.region else "deployment.outpost"
                raise BadInput(field, region, f"use a region of the scenario: {known}")
        self.state = StateDirectory(state or STATE)
        self._port = port
        self._tick = tick
        self._guest = tuple(guest)
        self._credentials = credentials or _credentials
        self._emulate = emulate
        self._stack = ExitStack()
        self._token = secrets.token_hex(16)

    def __enter__(self) -> Self:
        """Bring the system up; nothing is deployed yet."""
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the system down."""
        self.down()

    def up(self) -> None:
        """Start everything; raise `BadInput` when the port or the state directory is in use."""
        with ExitStack() as stack:
            stack.enter_context(self.state.held())
            self.gateway = Gateway(bind(self._port))
            stack.callback(self.gateway.stop)
            outer = environment.outer_environment()
            stack.callback(Reaper(self._token, environment=outer).close)
            stack.enter_context(environment.environment_of_process(self._environment()))
            stack.enter_context(environment.temporary_files_in(self.state.path / "tmp"))
            self._start(stack, outer)
            self.state.tell(
                endpoint=self.endpoint,
                region=self.region,
                regions=" ".join(self.regions),
                deployment=self.deployment,
                scenario=digest_of(self.scenario),
                tick=str(self._tick.total_seconds()),
            )
            self._stack = stack.pop_all()

    def deploy(self, tell: Callable[[str], None] = _LOGGER.info) -> None:
        """Deploy core and outposts with `cdk`; raise `DeployError` with one sentence.

        `tell` hears of each step as it begins.

        Every schedule fires once before this returns, the rarest first, as in the first hour of a
        deployment: then there is a catalogue of offers, and the functions are warm.
        """
        for region in self.regions:
            s3, ssm = self.client("s3", region), self.client("ssm", region)
            bootstrap(s3, ssm, region, self._qualifier)
        self._with_cdk(partial(deploy, tell=tell), "deploy")
        put_dashboards(self.client("cloudwatch"), self.state.path, self.deployment, self.region)
        self._fire_all(tell)
        note_deployed(self.state.path)

    def _fire_all(self, tell: Callable[[str], None]) -> None:
        firings = self.gateway.call(self._ticker.firings)
        # A spare tick asks for the same as the tick.
        for firing in {(one.function, one.payload): one for one in firings}.values():
            tell(f"running {firing.function.rpartition(':')[2]} for the first time")
            self._invoke("RequestResponse", firing.region, firing.function, firing.payload)

    def renew(self) -> tuple[str, ...]:
        """Take over what was deployed meanwhile; return the machines that this has ended.

        On AWS functions remember settings for minutes, and machines with other code finish their
        jobs. Here somebody waits for the change: functions begin anew, and jobs in hand go on on
        machines with the new code.
        """
        self.gateway.call(emulator.renew_functions)
        # A tick with the settings of before may launch a machine with the code of before.
        emulator.await_old_functions()
        # Containers of a workload that has gone are on machines that end here.
        self._has_containers |= _has_containers(config.load(self.config_path))
        ended = []
        for region in self.regions:
            ec2 = self.client("ec2", region)
            live = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
            for page in ec2.get_paginator("describe_instances").paginate(Filters=live):
                found = [one["InstanceId"] for r in page["Reservations"] for one in r["Instances"]]
                if found:
                    # First gently: they give back the messages that they hold.
                    self.hypervisor.shut_down(found, within=_SHUT_DOWN_SECONDS)
                    ec2.terminate_instances(InstanceIds=found)
                    ended += found
        self._fire_all(_LOGGER.info)
        note_deployed(self.state.path)
        return tuple(ended)

    def destroy(self) -> None:
        """Delete core and outposts; market and bucket go on (raises `DeployError`)."""
        self._with_cdk(destroy, "destroy")

    def _with_cdk(self, act: Callable[..., None], name: str) -> None:
        act(
            self.config_path,
            stacks=stacks_of(self.deployment, self.regions),
            state=self.state.path,
            environment=environment.outer_environment() | self._environment(),
            log=self.state.log_path(name),
        )

    def down(self) -> None:
        """End everything: guests, functions, the endpoint; harmless when it is down."""
        self._stack.close()

    @property
    def endpoint(self) -> str:
        """The address at which everything is served."""
        return self.gateway.endpoint

    def client(self, service: str, region: str | None = None) -> Any:
        """Return a boto3 client of a service of the local system."""
        # boto3's stubs have an overload for each service; here the name is the caller's.
        create: Any = self._session.client
        return create(
            service,
            region_name=region or self.region,
            endpoint_url=self.endpoint,
            config=ClientConfig(
                read_timeout=_INVOCATION_SECONDS, retries={"total_max_attempts": 1}
            ),
        )

    def status(self) -> SystemStatus:
        """Return what the system is doing now."""
        return SystemStatus(
            endpoint=self.endpoint,
            region=self.region,
            deployment=self.deployment,
            pid=self.state.pid,
            queues=queue_statuses(self.client("sqs")),
            functions=function_names(self.client("lambda")),
            instances=instance_statuses(self.market, self.hypervisor.console_path),
        )

    def with_jobs(self) -> tuple[str, ...]:
        """Return the workloads with a job that has begun: what it has left ends with the system."""
        return find_with_jobs(self.client("s3"))

    def exports(self) -> str:
        """Return the shell lines that point the aws command line and every SDK here."""
        return environment.export_lines(self.state.profile_path)

    def _environment(self) -> dict[str, str]:
        return {
            **environment.aws_environment(self.endpoint, self.region),
            **emulator.settings(self.gateway.port),
            TOKEN_VARIABLE: self._token,
        }

    def _start(self, stack: ExitStack, outer: dict[str, str]) -> None:
        self._session = boto3.Session(
            aws_access_key_id=environment.ACCESS_KEY,
            aws_secret_access_key=environment.SECRET_KEY,
            region_name=self.region,
        )
        app = self._emulate(self.gateway.port)
        self.hypervisor = Hypervisor(self._guest_setup(outer), powered_off=self._powered_off)
        self.market = LocalMarket(
            self.scenario,
            clock=_now,
            driver=self.hypervisor,
            emit=self._emit,
            account=environment.ACCOUNT,
        )
        router = Router(
            emulator=app,
            market=MarketApp(self.market, app),
            metadata=MetadataApp(self.market, credentials=self._credentials),
            answers={
                STATUS_PATH: lambda: encode(self.status()),
                WITH_JOBS_PATH: self.with_jobs,
                CHANGED_PATH: self.renew,
            },
        )
        pool = stack.enter_context(_pool())

        def notify(region: str, function_arn: str, payload: bytes) -> None:
            pool.submit(self._invoke, "Event", region, function_arn, payload)

        monitor = Monitor(region=self.region, tick=self._tick, invoke=notify, clock=_now)
        self._ticker = Ticker(
            tick=self._tick, invoke=partial(self._invoke, "RequestResponse"), clock=_now
        )
        every = {
            monitor.evaluate: self._tick.total_seconds() / _LOOKS_A_TICK,
            self._ticker.fire: _SCHEDULE_SECONDS,
        }
        self.gateway.start(router, every=every)
        stack.callback(emulator.kill_functions)
        stack.callback(self.hypervisor.close)
        stack.enter_context(pulse(self._step))
        stack.callback(self._ticker.stop)
        environment.write_profile(
            self.state.profile_path, endpoint=self.endpoint, region=self.region
        )

    def _guest_setup(self, outer: dict[str, str]) -> GuestSetup:
        directory = self.state.path.resolve() / "instances"
        aws = environment.aws_environment(self.endpoint, self.region)
        shared = {name: text for name, text in outer.items() if name in _GUEST_KNOWS}
        mine = {name: aws[name] for name in ("AWS_ENDPOINT_URL", "NO_PROXY", "no_proxy")}
        return GuestSetup(
            command=self._guest,
            directory=directory,
            environment={
                **shared,
                **mine,
                "SPINDOWN_STOP_GRACE": str(_STOP_GRACE_SECONDS),
                "PYTHONPATH": str(Path(spindown.__file__).parent.parent),
                TOKEN_VARIABLE: self._token,
            },
            metadata=f"{self.endpoint}{METADATA_PATH}",
            clear=lambda: (*WORKER, "--clear") if self._has_containers else (),
        )

    def _step(self) -> None:
        self.market.run_due()
        self.hypervisor.step()

    def _powered_off(self, instance_id: str) -> None:
        self.market.guest_powered_off(instance_id)

    def _emit(self, *, source: str, detail_type: str, detail: Any, resources: list[str]) -> None:
        region = resources[0].split(":")[3]
        self.gateway.post(
            partial(
                emulator.put_event,
                region,
                source=source,
                detail_type=detail_type,
                detail=detail,
                resources=resources,
            )
        )

    def _invoke(self, how: str, region: str, function_arn: str, payload: bytes) -> None:
        client = self.client("lambda", region)
        answer = client.invoke(FunctionName=function_arn, InvocationType=how, Payload=payload)
        if "FunctionError" in answer:
            said = answer["Payload"].read()[:300].decode(errors="replace")
            _LOGGER.error("function failed: %s: %s", function_arn, said)


def _now() -> datetime:
    return datetime.now(UTC)


def _credentials(instance: Ec2Instance) -> RoleCredentials:
    name = (instance.order.template.profile_arn or "").rpartition("/")[2]
    return RoleCredentials(
        role=name,
        access_key=environment.ACCESS_KEY,
        secret_key=environment.SECRET_KEY,
        token="local",  # noqa: S106 - the emulator takes any
        expires_at=_now() + _CREDENTIALS_FOR,
    )


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="invoke")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
