"""The table of metrics is held to the code that emits them."""

import re
from pathlib import Path

import pytest

from spindown.contract.metric import METRICS, Emitter, Metric

ROOT = Path(__file__).parents[3]

#: Where each emitter's metrics are named.
EMITTING = {
    Emitter.SCALER: ["spindown/control", "spindown/control/alert"],
    Emitter.INTERRUPTION: ["spindown/control/instance_event.py", "functions"],
    Emitter.OFFERS: ["spindown/control/market", "spindown/control/alert"],
    Emitter.INTAKE: ["spindown/job/route.py"],
    Emitter.WORKER: ["spindown/job", "worker"],
}


def source_of(emitter: Emitter) -> str:
    files = [
        file
        for name in EMITTING[emitter]
        for file in ([ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("*.py")))
    ]
    return "\n".join(file.read_text() for file in files)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_each_metric_is_emitted_by_whom_the_table_says(metric: Metric) -> None:
    shared = source_of(Emitter.INTERRUPTION) if metric.name == "MalformedEvents" else ""
    for emitter in metric.emitters:
        assert f'"{metric.name}"' in source_of(emitter) + shared, (metric.name, emitter)


def test_names_are_pascal_case_and_said_once() -> None:
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", name) for name in METRICS)
    assert len({metric.description for metric in METRICS.values()}) == len(METRICS)


def test_every_metric_says_its_deployment() -> None:
    assert all(metric.dimensions[0] == "Deployment" for metric in METRICS.values())
