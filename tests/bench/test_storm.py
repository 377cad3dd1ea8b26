"""How long a tick takes to book a fleet that EC2 has taken at once, when each call takes a while.

The ports are in memory, and each round trip to AWS really waits for 15 ms; of SQS's batches each
ten messages are one trip.
"""

from collections.abc import Callable
from datetime import timedelta
from threading import Event
from time import perf_counter, process_time
from typing import Any

import pytest

from spindown.memory import PortCall
from tests.bench.record import record
from tests.builders import minutes
from tests.storm import Storm, trips_of

pytestmark = pytest.mark.bench

TRIP_S = 0.015
LIMIT_S = 10.0
WORKERS = 1000


def test_a_fleet_of_1000_is_booked_within_10_s() -> None:
    world = Storm(size=WORKERS)
    world.take_all(timedelta(0))

    def wait(call: PortCall, proceed: Callable[[], Any]) -> Any:
        Event().wait(TRIP_S * trips_of(call))
        return proceed()

    world.interfere = wait
    began_at, cpu = perf_counter(), process_time()
    decision = world.tick(minutes(1))
    taken = perf_counter() - began_at

    assert len(decision.ended) == WORKERS
    record(
        "storm",
        {
            "workers": WORKERS,
            "trip_ms": TRIP_S * 1000,
            "round_trips": world.trips,
            "cpu_s": round(process_time() - cpu, 3),
            "taken_s": round(taken, 3),
            "limit_s": LIMIT_S,
        },
    )
    assert taken < LIMIT_S
