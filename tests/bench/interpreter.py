"""Simulate the same days on several Pythons: whether they agree to the byte, and how fast each is.

    python -m tests.bench.interpreter --days 1 python3.13 pypy3

The simulator needs nothing but the standard library, so any Python from 3.11 on will do. The
figures go to docs/bench/interpreter.json. Times are of the processor, runs in turns, the least
counts; the interpreter that runs this module comes first.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.record import record

_ROOT = Path(__file__).parents[2]
_RUN = """
import hashlib, json, platform, sys
from dataclasses import replace
from datetime import timedelta
from time import process_time
from spindown.domain.policy import Policy
from spindown.simulator import SimScenario, simulate
from spindown.simulator.sample import daily_stream, sample_market
from spindown.simulator.scenario import DAY
days = float(sys.argv[1])
scenario = SimScenario(
    name="stream",
    arrivals=daily_stream(seed=1, days=days),
    listings=sample_market(seed=1, days=days),
    length=days * DAY,
)
minutes = timedelta(minutes=1)
policy = Policy(drain_within=8 * minutes, start_within=4 * minutes)
began = process_time()
result = simulate(scenario, replace(policy, max_workers=64), 1)
print(json.dumps({
    "name": f"{platform.python_implementation()} {platform.python_version()}",
    "cpu_s": process_time() - began,
    "events": result.events,
    "result": hashlib.sha256(result.to_json().encode()).hexdigest(),
}))
"""


def main() -> None:
    """Run every interpreter in turn, and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", help="further interpreters")
    parser.add_argument("--days", default="1", help="of 4,000 jobs each")
    parser.add_argument("--rounds", type=int, default=1)
    asked = parser.parse_args()
    runs = [
        _simulate(python, asked.days)
        for _ in range(asked.rounds)
        for python in (sys.executable, *asked.pythons)
    ]
    figures: dict[str, float | int | str] = {"days": float(asked.days), "events": runs[0]["events"]}
    for name in dict.fromkeys(run["name"] for run in runs):
        least = min(run["cpu_s"] for run in runs if run["name"] == name)
        figures |= {
            f"{name} cpu_s": round(least, 1),
            f"{name} events_a_second": round(runs[0]["events"] / least),
        }
    figures["same_to_the_byte"] = int(len({run["result"] for run in runs}) == 1)
    record("interpreter", figures)


def _simulate(python: str, days: str) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-c", _RUN, days],
        check=True,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
