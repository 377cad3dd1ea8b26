"""Synthesises an insight stack by itself, and reads what came to be."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aws_cdk import App, DefaultStackSynthesizer

from spindown import config
from spindown.config import Config
from spindown.infra.flag import FLAGS
from spindown.infra.observability.stack import InsightStack

BUCKET = "lab-results"
TOPIC = "arn:aws:sns:eu-west-1:111122223333:lab--alarms"


def a_config(*workloads: str, **deployment: Any) -> Config:
    """Return a deployment ``lab`` of the named workloads."""
    return config.parse(
        {
            "deployment": {
                "name": "lab",
                "region": "eu-west-1",
                "zones": ["eu-west-1a"],
                **deployment,
            },
            "workload": {
                name: {
                    "run": {"entrypoint": "job:run", "code": "code"},
                }
                for name in workloads
            },
        }
    )


def make_app(directory: Path, *, checked: bool = False) -> App:
    """Return an app with the recommended feature flags."""
    return App(
        outdir=str(directory),
        context=FLAGS,
        builtin_cloud_formation_validation=checked,
        analytics_reporting=False,
    )


def synthesise(config: Config, directory: Path) -> Mapping[str, Any]:
    """Return the template's resources by logical id."""
    app = make_app(directory)
    stack = InsightStack(
        app,
        config=config,
        bucket_name=BUCKET,
        topic_arn=TOPIC,
        failed_events="lab-core-ControlFailedEvents-1",
        synthesizer=DefaultStackSynthesizer(),
    )
    app.synth()
    template = json.loads((directory / f"{stack.stack_name}.template.json").read_text())
    resources: Mapping[str, Any] = template["Resources"]
    return resources


def all_of(resources: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    """Return the properties of the resources of one type."""
    return [one["Properties"] for one in resources.values() if one["Type"] == kind]


def alarm_metrics(alarm: Mapping[str, Any]) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield (namespace, name, names of dimensions) of all that an alarm reads."""
    found = [alarm] if "MetricName" in alarm else []
    found += [q["MetricStat"]["Metric"] for q in alarm.get("Metrics", []) if "MetricStat" in q]
    for metric in found:
        names = frozenset(one["Name"] for one in metric.get("Dimensions", []))
        yield metric["Namespace"], metric["MetricName"], names


def body(dashboard: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a dashboard shows; references are replaced by a word."""
    text = dashboard["DashboardBody"]
    if isinstance(text, dict):
        parts = text["Fn::Join"][1]
        text = "".join(part if isinstance(part, str) else "reference" for part in parts)
    shown: Mapping[str, Any] = json.loads(text)
    return shown


def graphs(dashboard: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the properties of the graphs of a dashboard, in its order."""
    return [w["properties"] for w in body(dashboard)["widgets"] if w["type"] == "metric"]


def graph_metrics(graph: Mapping[str, Any]) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield (namespace, name, names of dimensions) of all that a graph shows or searches."""
    for row in graph["metrics"]:
        if isinstance(row[0], dict):
            yield from _searched(row[0].get("expression", ""))
            continue
        namespace, name, *rest = (part for part in row if isinstance(part, str))
        yield namespace, name, frozenset(rest[::2])


def _searched(expression: str) -> Iterator[tuple[str, str, frozenset[str]]]:
    for schema, name in re.findall(r"SEARCH\('\{([^}]*)\} MetricName=\"(\w+)\"", expression):
        namespace, *dimensions = schema.split(",")
        yield namespace, name, frozenset(dimensions)


def titles(dashboard: Mapping[str, Any]) -> Sequence[str]:
    """Return the questions of a dashboard, in its order."""
    texts = [w["properties"]["markdown"] for w in body(dashboard)["widgets"] if w["type"] == "text"]
    return [text.splitlines()[0].removeprefix("## ") for text in texts]
