"""Saved Logs Insights queries over the logs of functions and workers."""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import aws_logs as logs
from constructs import Construct


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    """One question; its fields are those that functions and workers write."""

    name: str
    #: A function, or all ``functions``, or ``workers``.
    logs: str
    text: str


_QUERIES = (
    _Query(
        name="Why was nothing launched",
        logs="scaler",
        text="""\
fields @timestamp, workload, outcome, summary
| filter action = "reconciled" and outcome not in ["idle", "enough", "launched"]
| sort @timestamp desc
| limit 200""",
    ),
    _Query(
        name="Decisions by outcome",
        logs="scaler",
        text="""\
filter action = "reconciled"
| stats count(*) as ticks by workload, outcome, bin(1h) as hour
| sort hour desc""",
    ),
    _Query(
        name="Interruptions",
        logs="interruption",
        text="""\
fields @timestamp, instance_id, workload, acted, leases_freed, summary
| filter action = "reacted" and workload != ""
| sort @timestamp desc
| limit 200""",
    ),
    _Query(
        name="Errors of the control plane",
        logs="functions",
        text="""\
fields @timestamp, service, message, exception_name, exception
| filter level in ["ERROR", "CRITICAL"] or @message like /Task timed out/
| sort @timestamp desc
| limit 100""",
    ),
    _Query(
        name="Warnings of workers",
        logs="workers",
        text="""\
fields @timestamp, instance_id, slot, job_id, event, reason, traceback
| filter level in ["warning", "error"]
| sort @timestamp desc
| limit 100""",
    ),
    _Query(
        name="What jobs print",
        logs="workers",
        text="""\
fields @timestamp, job_id, slot, text, lines, instance_id
| filter event in ["user_output", "user_output_left_out"]
| sort @timestamp desc
| limit 1000""",
    ),
    _Query(
        name="Slowest ticks",
        logs="scaler",
        text="""\
filter @type = "REPORT"
| stats count(*) as ticks, avg(@duration) as mean, pct(@duration, 95) as p95,
    max(@duration) as longest, max(@maxMemoryUsed / 1e6) as memory by bin(1h) as hour
| sort hour desc""",
    ),
)


#: Those that are asked about by name come first.
_FUNCTIONS = ("scaler", "interruption", "offers", "teardown")


class SavedQueries(Construct):
    """The queries, under the folder ``spindown/{deployment}``."""

    def __init__(
        self, scope: Construct, construct_id: str, *, deployment: str, workloads: Sequence[str]
    ) -> None:
        super().__init__(scope, construct_id)
        functions = [_group(deployment, name) for name in _FUNCTIONS]
        groups = {
            "scaler": functions[:1],
            "interruption": functions[1:2],
            "functions": functions,
            "workers": [_group(deployment, f"worker/{name}") for name in workloads],
        }
        for query in _QUERIES:
            logs.CfnQueryDefinition(
                self,
                query.name.title().replace(" ", ""),
                name=f"spindown/{deployment}/{query.name}",
                query_string=query.text,
                log_group_names=groups[query.logs],
            )


def _group(deployment: str, name: str) -> str:
    return f"/spindown/{deployment}/{name}"
