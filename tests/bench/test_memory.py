"""The most memory that each function has taken, in the local system after its work.

The functions' processes are real, with the wheels of this machine; market and prices are those of
the default scenario. Lambda gives processor time by memory, so more than the peak is paid for on
purpose; ``tests/infra/test_control.py`` holds what is deployed against these figures.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ministack.core import lambda_runtime

from spindown.cli.session import connect
from spindown.local.system import LocalSystem
from tests.bench.record import record
from tests.local.waiting import until
from tests.local.world import at_once, write_config
from tests.proof.grant.function import end_of, leaving_out

pytestmark = pytest.mark.bench

NAMES = ("interruption", "offers", "scaler", "teardown")
JOBS = 40


def peak_mib(function: str) -> float:
    """Return the high-water mark of a function's processes (proc(5), VmHWM)."""
    found = []
    for key, entries in list(lambda_runtime._workers.items()):
        if function in key.split(":"):
            for entry in entries:
                status = Path(f"/proc/{entry._proc.pid}/status").read_text(encoding="utf-8")
                found += re.findall(r"VmHWM:\s+(\d+) kB", status)
    return max(map(int, found)) / 1024


def invoke(system: LocalSystem, function: str, event: Any) -> None:
    system.client("lambda").invoke(
        FunctionName=f"iam--{function}", Payload=json.dumps(event).encode()
    )


def test_memory_of_the_functions(tmp_path: Path) -> None:
    config = write_config(tmp_path, name="iam")
    with LocalSystem(config, state=tmp_path / "state", port=0, scenario=at_once()) as system:
        system.deploy()
        session = connect("iam", system.region)
        queue = session.workload("count").queue_url
        for number in range(JOBS):
            body = json.dumps({"items": ["one"], "job_id": f"job-{number}"})
            system.client("sqs").send_message(QueueUrl=queue, MessageBody=body)
        until(system.market.instances, seconds=60)
        for _ in range(3):
            invoke(system, "offers", {"source": "spindown.tick"})
            invoke(system, "scaler", {"source": "spindown.tick", "workload": "count"})
        instance, *_ = system.market.instances()
        invoke(system, "interruption", end_of(instance.instance_id, region=system.region))
        answer_to = f"{system.endpoint}/_ministack/cfn-response/nobody"
        gone = leaving_out("gone", region=system.region, answer_to=answer_to)
        invoke(system, "teardown", gone)

        record("memory", {f"{name}_peak_mib": round(peak_mib(f"iam--{name}"), 1) for name in NAMES})
