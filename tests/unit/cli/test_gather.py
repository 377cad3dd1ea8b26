"""What a simulation is fed with: a deployment's past and knowledge, its policy or a file's."""

import json
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from spindown.aws.wiring import Aws
from spindown.cli.history.arrival import ArrivalHistory, keep_last
from spindown.cli.history.gather import gather
from spindown.cli.history.option import SimulationOptions
from spindown.cli.session import Session
from spindown.contract.row import (
    BAKED_RATE,
    BOOT_RATE,
    JOB_RATE,
    image_sort_key,
    throughput_sort_key,
)
from spindown.domain.relative_throughput import relative_throughput
from spindown.error import BadInput
from spindown.memory import MemoryClock, MemoryTrafficHistory
from spindown.simulator import BOOTS, Arrival, Boot
from tests.control import REGION, WORKLOAD, ZONES, ControlWorld
from tests.simulator.scene import DAY


def test_of_a_long_history_the_last_days_are_used() -> None:
    traffic = ArrivalHistory(
        source="here",
        arrivals=tuple(Arrival(at=day * DAY, item_seconds=1.0) for day in range(10)),
        start=MemoryClock().now(),
        length=10 * DAY,
        is_dated=True,
    )
    kept = keep_last(traffic, 2.0)

    assert [arrival.at for arrival in kept.arrivals] == [0.0, DAY]
    assert (kept.start, kept.end) == (traffic.start + timedelta(days=8), traffic.end)
    assert "of 10 days of history the last 2 are used" in kept.notes[0]
    assert keep_last(traffic, 10.0) is traffic


@pytest.mark.parametrize(
    ("last", "times"),
    [
        pytest.param("2026-06-01T09:59:00Z", "730", id="one hour"),
        pytest.param("2026-06-03T08:59:00Z", "15", id="two days"),
        pytest.param("2026-06-08T08:59:00Z", None, id="a week"),
    ],
)
def test_less_than_a_week_is_said_to_be_scaled_to_a_month(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, times: str | None
) -> None:
    (tmp_path / "traffic.csv").write_text(
        f"timestamp,items,item_seconds\n2026-06-01T09:00:00Z,1,1\n{last},1,1\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)

    notes = gather(SimulationOptions(arrivals="traffic.csv", prices="sample")).notes

    told = [note for note in notes if "a month" in note]
    said = "a month is taken for {} times this traffic; divide by that if it comes once a month"
    assert told == ([] if times is None else [said.format(times)])


class FakeAws:
    """The ports that a history is read through, in memory."""

    def __init__(self, world: ControlWorld) -> None:
        self._world = world
        self.clock = world.clock
        self.history = MemoryTrafficHistory()

    def settings(self, _deployment: str) -> object:
        return self._world.settings

    def table(self, _name: str) -> object:
        return self._world.table

    def market(self) -> object:
        return self._world.market

    def traffic(self) -> MemoryTrafficHistory:
        return self.history


def a_deployment(
    *, boots: tuple[float, ...] = (), stamp: str = ""
) -> tuple[ControlWorld, FakeAws, Session]:
    world = ControlWorld(stamp=stamp)
    aws = FakeAws(world)
    world.put(BOOT_RATE, samples=boots)
    world.put(JOB_RATE, count=20.0, jobs=2.0, samples=(12.0, 8.0))
    deployment = world.settings.deployment()
    return world, aws, Session(aws=cast("Aws", aws), deployment=deployment)


def test_a_deployment_gives_history_prices_and_its_policy() -> None:
    world, aws, session = a_deployment(boots=(120.0,) * 8)
    world.settings.put_live(WORKLOAD, json.dumps({"max_workers": 7}))
    url = session.workload(WORKLOAD).queue_url
    aws.history.record(url.rpartition("/")[2], world.clock.now() - timedelta(hours=3), 5)
    options = SimulationOptions(
        arrivals="cloudwatch", prices="live", deployment="demo", is_live_policy=True, days=2.0
    )
    gathered = gather(options, lambda *_, **__: session)

    assert gathered.subject.policy.max_workers == 7
    assert gathered.subject.boot.at_least + gathered.subject.boot.median == pytest.approx(120.0)
    assert [arrival.items for arrival in gathered.traffic.arrivals] == [10] * 5
    assert gathered.traffic.length == 2 * DAY
    assert {zone for each in gathered.prices.listings for zone in each.zones} == set(ZONES)
    assert {each.region for each in gathered.prices.listings} == {REGION}
    assert gathered.scenario.length == 2 * DAY


def test_a_deployment_gives_the_speeds_that_it_measured() -> None:
    world, aws, session = a_deployment()
    sheet = relative_throughput("L40S", 1.0)
    estimate = session.workload(WORKLOAD).policy.throughput_estimate
    for gpu, times in (("T4", 1.0), ("L40S", 2.0 * sheet)):
        sort = throughput_sort_key(gpu, 1.0)
        world.put(sort, count=1e3 * times * estimate, hours=1e3, reports=100.0, lives=10_000.0)
    aws.history.record("demo--classify", world.clock.now() - timedelta(hours=3))
    options = SimulationOptions(arrivals="cloudwatch", prices="sample", deployment="demo", days=1.0)
    gathered = gather(options, lambda *_, **__: session)
    arrival, speeds = gathered.traffic.arrivals[0], gathered.prices.listings

    assert arrival.item_seconds == pytest.approx(3600.0 / estimate, rel=0.001)
    (fast,) = (one.speed for one in speeds if one.instance_type.gpu_name == "L40S")
    assert fast == pytest.approx(2.0 * sheet, rel=0.001)


def test_a_file_gives_the_policy_and_the_deployment_the_history(tmp_path: Path) -> None:
    world, aws, session = a_deployment()
    file = tmp_path / "spindown.toml"
    file.write_text(
        '[deployment]\nname = "demo"\nregion = "us-west-2"\nzones = ["us-west-2a"]\n'
        f'[workload.{WORKLOAD}.run]\nentrypoint = "a:run"\ncode = "a"\n'
        f"[workload.{WORKLOAD}.policy]\nmax_workers = 9\n"
        "[[pricing.discount]]\nmultiplier = 0.7\n",
        encoding="utf-8",
    )
    url = session.workload(WORKLOAD).queue_url
    aws.history.record(url.rpartition("/")[2], world.clock.now() - timedelta(hours=3))
    options = SimulationOptions(arrivals="cloudwatch", prices="sample", policy=file, days=1.0)
    gathered = gather(options, lambda *_, **__: session)

    assert gathered.subject.policy.max_workers == 9
    assert [arrival.items for arrival in gathered.traffic.arrivals] == [10]
    assert "prices after 1 discount of [pricing]" in gathered.notes
    # A made-up market has zones of its own, and says so.
    assert any("us-west-2a" in note for note in gathered.notes)


@pytest.mark.parametrize(
    ("mode", "boots", "half"),
    [
        pytest.param("bake", (), 39.0, id="none was measured"),
        pytest.param("bake", (120.0,) * 8, 120.0, id="some were measured"),
        pytest.param("bootstrap", (), 90.0, id="without an image"),
    ],
)
def test_the_file_says_how_machines_boot_until_some_have(
    tmp_path: Path, mode: str, boots: tuple[float, ...], half: float
) -> None:
    world, aws, session = a_deployment(boots=boots)
    aws.history.record("demo--classify", world.clock.now() - timedelta(hours=3))
    file = tmp_path / "spindown.toml"
    file.write_text(
        '[deployment]\nname = "demo"\nregion = "us-west-2"\n'
        f'[workload.{WORKLOAD}.run]\nentrypoint = "a:run"\ncode = "a"\n'
        f'[workload.{WORKLOAD}.image]\nmode = "{mode}"\n',
        encoding="utf-8",
    )
    options = SimulationOptions(arrivals="cloudwatch", prices="sample", policy=file, days=1.0)

    boot = gather(options, lambda *_, **__: session).subject.boot

    assert boot.at_least + boot.median == pytest.approx(half)


def test_a_deployment_with_an_image_boots_from_it() -> None:
    world, aws, session = a_deployment(stamp="with this")
    aws.history.record("demo--classify", world.clock.now() - timedelta(hours=3))
    options = SimulationOptions(
        arrivals="cloudwatch", prices="sample", deployment="demo", is_live_policy=True, days=1.0
    )

    def boot() -> Boot:
        return gather(options, lambda *_, **__: session).subject.boot

    before = boot()
    world.put(
        image_sort_key("x86_64"),
        images={REGION: "ami-1"},
        stamp="with this",
        based_at=world.clock.now().isoformat(),
    )

    assert (before, boot()) == (BOOTS["bootstrap"], BOOTS["baked"])
    world.put(BAKED_RATE, samples=(30.0,) * 8)
    assert boot().at_least + boot().median == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("seconds", "end"),
    [
        pytest.param(0, 0, id="a whole minute"),
        pytest.param(1, 60, id="begun"),
        pytest.param(59, 60, id="almost over"),
    ],
)
def test_what_was_sent_in_the_minute_under_way_counts(seconds: int, end: int) -> None:
    world, aws, session = a_deployment()
    begin = world.clock.now()
    world.clock.advance(timedelta(seconds=seconds))
    url = session.workload(WORKLOAD).queue_url
    aws.history.record(url.rpartition("/")[2], begin - timedelta(minutes=1))
    options = SimulationOptions(arrivals="cloudwatch", prices="sample", deployment="demo", days=1.0)

    traffic = gather(options, lambda *_, **__: session).traffic

    assert (traffic.end, traffic.start) == (
        begin + timedelta(seconds=end),
        begin + timedelta(seconds=end) - timedelta(days=1),
    )


def test_a_workload_that_is_not_deployed_is_named() -> None:
    _, _, session = a_deployment()
    options = SimulationOptions(
        arrivals="cloudwatch", prices="live", workload="nobody", deployment="demo"
    )
    with pytest.raises(BadInput, match="workload is 'nobody': name one of the deployment's"):
        gather(options, lambda *_, **__: session)
