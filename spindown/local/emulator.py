"""MiniStack, embedded: every touch of its private API is in this module.

It has one state for the process, so there is one local system in a process at a time. What it
leaves out (queue metrics, alarms by dimensions, alarm actions on functions, metrics embedded in
log lines) is added by `monitor` and `schedule` through these functions, and what it does in
another way is switched off. All of them must be called on the event loop that serves the app.

Pinned: ministack==1.5.33. Each function has a test that fails when that API changes.
"""

# Private members are this module's subject; imports wait for `load`, since MiniStack reads the
# environment when it is imported.
# ruff: noqa: PLC0415, SLF001

import asyncio
import json
import logging
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from threading import Event, Lock, Thread
from threading import enumerate as enumerate_threads
from time import monotonic
from types import SimpleNamespace
from typing import Any

from spindown.local.alarm import embedded_metrics
from spindown.local.environment import ACCOUNT
from spindown.local.market.wire.asgi import App
from spindown.local.metric_math import MetricName, evaluate_queries

_LOGGER = logging.getLogger(__name__)
#: How long CloudFormation's answer waits for the end of a change at most, and between two looks.
_ANSWER_WITHIN_SECONDS, _LOOK_SECONDS = 10.0, 0.05
#: Names threads that let a function of before end.
_OLD_FUNCTION = "old-function"
#: The metric of SQS that tells the traffic of a queue.
SENT = "NumberOfMessagesSent"


@contextmanager
def in_region(region: str) -> Iterator[None]:
    """Let what is called within work on that region's state of the local account."""
    from ministack.core.responses import request_scope

    with request_scope(ACCOUNT, region):
        yield


def settings(port: int) -> dict[str, str]:
    """Return the environment variables that MiniStack and its functions run with."""
    return {
        "GATEWAY_PORT": str(port),
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "LAMBDA_EXECUTOR": "local",
        "LOG_LEVEL": "WARNING",
        # Listeners of services that nobody uses here.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
    }


def load(port: int) -> App:
    """Import MiniStack for a gateway on `port`; return its app with an empty state.

    Call it within the environment of `settings`: much of it is read at the first import.
    """
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    from ministack import app as gateway
    from ministack.core import lambda_runtime
    from ministack.services import (
        cloudformation,
        cloudwatch,
        cloudwatch_logs,
        eventbridge,
        scheduler,
        sqs,
    )
    from ministack.services.cloudformation import custom_resource

    root.handlers[:] = handlers
    root.setLevel(level)
    gateway._reset_all_state()
    # Queue URLs in templates carry the port of the first import otherwise.
    sqs.DEFAULT_PORT = str(port)
    sqs._CANONICAL_NETLOC = f"{sqs.DEFAULT_HOST}:{port}"
    _wrap(sqs, "_act_send_message", _counting)
    sqs._HANDLERS["SendMessage"] = sqs._act_send_message
    _wrap(lambda_runtime, "_collect", _closing)
    _wrap(lambda_runtime, "kill_workers", _patient)
    lambda_runtime.zipfile = SimpleNamespace(**{**vars(zipfile), "ZipFile": SharedArchive})
    # Where custom resources answer.
    custom_resource._HOST, custom_resource._PORT = "127.0.0.1", str(port)
    _wrap(cloudformation, "handle_request", _waiting)
    # Its own evaluation mixes all dimensions of a metric; its tickers know no faster minute.
    cloudwatch._evaluate_alarm = _leave_to_monitor
    _wrap(cloudwatch, "_get_metric_data", _calculating)
    eventbridge.start_scheduler = scheduler.start_scheduler = _leave_to_schedule
    _wrap(eventbridge, "_dispatch_to_event_bus", _forwarding)
    _wrap(cloudwatch_logs, "_append_log_events", recording)
    app: App = gateway.app
    return app


def _wrap(module: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    """Put a wrapper around a function of MiniStack, in place of that of an earlier ``load``."""
    function = getattr(getattr(module, name), "original", getattr(module, name))
    wrapped = wrapper(function)
    wrapped.original = function
    setattr(module, name, wrapped)


def _leave_to_monitor(alarm: Mapping[str, Any]) -> None:
    del alarm


def _leave_to_schedule() -> None:
    _LOGGER.debug("tickers are left to schedule")


def _waiting(handle: Any) -> Any:
    """Return what answers for CloudFormation, made to tell of stacks once nothing changes them.

    `cdk` asks every five seconds, and a stack is made in two.
    """

    async def handle_when_done(*request: Any) -> Any:
        _, _, _, body, _ = request
        left = _ANSWER_WITHIN_SECONDS if b"Action=DescribeStacks" in body else 0.0
        ends_at = monotonic() + left
        while monotonic() < ends_at and _is_changing():  # noqa: ASYNC110 - nothing tells of the end
            await asyncio.sleep(_LOOK_SECONDS)
        return await handle(*request)

    return handle_when_done


def _is_changing() -> bool:
    """Tell whether a stack of this region is being made, changed or deleted."""
    from ministack.services import cloudformation

    states = [str(stack["StackStatus"]) for stack in cloudformation._stacks.values()]
    return any(one.endswith("_IN_PROGRESS") and not one.startswith("REVIEW") for one in states)


def renew_functions() -> None:
    """Let every function begin anew, in new processes; what is under way comes to its end."""
    from ministack.core import lambda_runtime

    lambda_runtime.reset()


def await_old_functions() -> None:
    """Wait until what was under way as functions began anew has come to its end."""
    for thread in enumerate_threads():
        if thread.name == _OLD_FUNCTION:
            thread.join()


def kill_functions() -> None:
    """End every function's process, whatever it does."""
    from ministack.core import lambda_runtime

    with lambda_runtime._lock:
        every = [one for pool in lambda_runtime._workers.values() for one in pool]
        lambda_runtime._workers.clear()
    lambda_runtime.kill_workers.original(every)


def _patient(kill: Any) -> Any:
    """Return what ends processes of functions, made to let them finish what they do, as Lambda.

    A tick that is killed would leave its lock behind, and no other would run for three minutes.
    """

    def kill_when_done(workers: Sequence[Any]) -> None:
        busy = [one for one in workers if one and one.in_use]
        kill([one for one in workers if one and one not in busy])
        for one in busy:
            Thread(target=_kill_later, args=(kill, one), name=_OLD_FUNCTION, daemon=True).start()

    return kill_when_done


def _kill_later(kill: Any, worker: Any) -> None:
    """End a function's process once it has answered, or its time is up."""
    waiting, ends_at = Event(), monotonic() + float(worker.config.get("Timeout", 3))
    while worker.in_use and monotonic() < ends_at:
        waiting.wait(_LOOK_SECONDS)
    kill([worker])


class SharedArchive(zipfile.ZipFile):
    """An archive whose files are unpacked once among the temporary files, and linked from then on.

    MiniStack unpacks the code anew for each process of a function: some 1600 files that nobody
    writes to.
    """

    _lock = Lock()

    def extractall(self, path: Any = None, members: Any = None, pwd: bytes | None = None) -> None:
        """Fill a directory with links to the files of the archive."""
        content = Path(str(self.filename)).read_bytes()
        unpacked = Path(tempfile.gettempdir()) / f"code-{sha256(content).hexdigest()}"
        with self._lock:
            if not unpacked.exists():
                super().extractall(unpacked, members, pwd)
        for entry in unpacked.iterdir():
            (Path(path) / entry.name).symlink_to(entry)


def _closing(collect: Any) -> Any:
    """Return what waits for a function's process, made to close its pipes as well."""

    def collect_and_close(process: Any, deadline: float) -> None:
        collect(process, deadline)
        for pipe in (process.stdin, process.stdout, process.stderr) if process else ():
            with suppress(OSError):
                pipe.close()

    return collect_and_close


def _counting(send: Any) -> Any:
    """Return what takes a message, made to count it as SQS does (NumberOfMessagesSent)."""

    def send_and_count(data: Mapping[str, Any], url: str) -> Any:
        from ministack.services import cloudwatch, sqs

        answer = send(data, url)
        name = sqs._get_q(data.get("QueueUrl", url))["name"]
        dimensions = {"QueueName": name}
        cloudwatch.record_metric("AWS/SQS", SENT, 1.0, dimensions=dimensions)
        return answer

    return send_and_count


def _forwarding(dispatch: Any) -> Any:
    """Return what hands events to a bus, made to reach the buses of other regions as well.

    An event keeps the region that it came from, and goes no further than one bus.
    """

    def forward(spec: Any, event: Any, rule: Any, path: Any, payload: Any = None) -> None:
        from ministack.core.responses import get_account_id, get_region
        from ministack.services import eventbridge

        if spec.region == get_region() or spec.account_id != get_account_id() or path:
            dispatch(spec, event, rule, path, payload)
            return
        source = f"{rule.get('EventBusName', 'default')}/{rule.get('Name')}"
        bus = spec.resource.partition("/")[2]
        with in_region(spec.region):
            eventbridge._dispatch_event({**event, "EventBusName": bus, "_DispatchPath": [source]})

    return forward


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """What SQS would report of one queue; the age is that of the oldest waiting message."""

    name: str
    visible: int
    in_flight: int
    delayed: int
    oldest_seconds: float


#: SQS leaves out of the age what was received this often (AWS, "Available CloudWatch metrics").
_RECEIVES_OUT_OF_AGE = 3


def queue_depths(region: str, now: datetime) -> tuple[QueueDepth, ...]:
    """Return the depth of every queue of a region."""
    from ministack.services import sqs

    depths = []
    with in_region(region):
        for queue in list(sqs._queues.values()):
            sqs._refresh_counts(queue)
            attributes = queue["attributes"]
            sent = [
                message["sent_at"]
                for message in queue["messages"]
                if message["receive_count"] < _RECEIVES_OUT_OF_AGE
            ]
            depths.append(
                QueueDepth(
                    name=queue["name"],
                    visible=int(attributes["ApproximateNumberOfMessages"]),
                    in_flight=int(attributes["ApproximateNumberOfMessagesNotVisible"]),
                    delayed=int(attributes["ApproximateNumberOfMessagesDelayed"]),
                    oldest_seconds=max(now.timestamp() - min(sent), 0.0) if sent else 0.0,
                )
            )
    return tuple(depths)


def may_invoke(region: str, function_arn: str, *, principal: str, source_arn: str) -> bool:
    """Tell whether a function's resource policy lets a service invoke it on behalf of a source."""
    from ministack.services import lambda_svc

    with in_region(region):
        found = lambda_svc.function_policy_for_arn(function_arn)
    statements: Sequence[Mapping[str, Any]] = found[0].get("Statement", []) if found else []
    return any(
        statement.get("Effect") == "Allow"
        and isinstance(statement.get("Principal"), dict)
        and statement["Principal"].get("Service") == principal
        and fnmatchcase(source_arn, _source_pattern(statement))
        for statement in statements
    )


def _source_pattern(statement: Mapping[str, Any]) -> str:
    condition: Mapping[str, Any] = statement.get("Condition") or {}
    return str(condition.get("ArnLike", {}).get("AWS:SourceArn", "*"))


def put_event(
    region: str, *, source: str, detail_type: str, detail: Mapping[str, Any], resources: list[str]
) -> None:
    """Put an event of an AWS service on the default bus, where deployed rules route it."""
    from ministack.services import eventbridge

    entry = {
        "Source": source,
        "DetailType": detail_type,
        "Detail": json.dumps(dict(detail)),
        "Resources": resources,
    }
    with in_region(region):
        eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)


def schedules() -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return every schedule of EventBridge Scheduler with its region, and rules with a rate."""
    from ministack.services import eventbridge, scheduler

    found = [
        (region, dict(schedule))
        for (_, region, _), schedule in list(scheduler._schedules._data.items())
    ]
    for key, rule in list(eventbridge._rules._data.items()):
        if rule.get("ScheduleExpression"):
            targets = eventbridge._targets._data.get(key, ())
            found += [(key[1], {**rule, "Target": target}) for target in targets]
    return tuple(found)


def rate_seconds(expression: str) -> int | None:
    """Return the seconds of a rate() expression, None of any other."""
    from ministack.services import eventbridge

    seconds: int | None = eventbridge._parse_rate_seconds(expression)
    return seconds


# CloudWatch: data points, alarms, log lines and the metrics within.


def put_metric(
    region: str, namespace: str, name: str, value: float, dimensions: Mapping[str, str]
) -> None:
    """Store one data point as of now, AWS's own namespaces included."""
    from ministack.services import cloudwatch

    with in_region(region):
        cloudwatch.record_metric(namespace, name, value, dimensions=dict(dimensions))


def alarms(region: str) -> tuple[Mapping[str, Any], ...]:
    """Return every metric alarm as PutMetricAlarm made it, with its state."""
    from ministack.services import cloudwatch

    with in_region(region):
        return tuple(dict(alarm) for alarm in cloudwatch._alarms.values())


def statistic(region: str, alarm: Mapping[str, Any], *, after: float, until: float) -> float | None:
    """Return the alarm's statistic over (after, until], by its dimensions; None without data.

    The bounds are seconds since the epoch.
    """
    from ministack.services import cloudwatch

    dimensions = {one["Name"]: one["Value"] for one in alarm["Dimensions"]}
    key = (alarm["Namespace"], alarm["MetricName"], cloudwatch._dims_key(dimensions))
    with in_region(region):
        stored = cloudwatch._metrics.get(key) or []
    newest_first = reversed(stored)
    if alarm["Namespace"].startswith("AWS/"):
        # AWS's own are stored in order, several a second for hours: the older ones are not read.
        newest_first = takewhile(lambda one: one["Timestamp"] > after, newest_first)
    points = [one for one in newest_first if after < one["Timestamp"] <= until]
    if not points:
        return None
    name = alarm.get("ExtendedStatistic") or alarm["Statistic"]
    value = cloudwatch._stat_value(cloudwatch._calc_stats(points), name, points)
    return None if value is None else float(value)


def _calculating(get: Any) -> Any:
    """Return GetMetricData with metric math and searches; calls in the old protocol stay."""

    def get_and_calculate(params: Any, given: Any, *protocol: Any, is_json: Any = None) -> Any:
        from ministack.services import cloudwatch

        is_cbor, is_json = (*protocol, is_json)[:2]
        if not (is_cbor or is_json):
            return get(params, given, is_cbor, is_json)
        since = cloudwatch._parse_ts(given["StartTime"])
        until = cloudwatch._parse_ts(given["EndTime"])
        lines = evaluate_queries(
            given["MetricDataQueries"],
            since=since,
            until=until,
            stored=[
                MetricName(key[0], key[1], points[-1]["Dimensions"])
                for key, points in list(cloudwatch._metrics.items())
                if points
            ],
            read=partial(_read_periods, since=since, until=until),
        )
        results = [
            {
                "Id": line.query_id,
                "Label": line.label,
                "StatusCode": "Complete",
                "Timestamps": [cloudwatch._ts_iso(at) for at in sorted(line.points)],
                "Values": [line.points[at] for at in sorted(line.points)],
            }
            for line in lines
        ]
        if is_json:
            return cloudwatch._json_ok({"MetricDataResults": results})
        encoded = [cloudwatch._cbor_metric_data_result(one) for one in results]
        return cloudwatch._cbor_ok({"MetricDataResults": encoded})

    return get_and_calculate


def _read_periods(
    metric: MetricName, statistic: str, period: int, *, since: float, until: float
) -> Mapping[int, float]:
    """Return begin of each period that has data -> its statistic."""
    from ministack.services import cloudwatch

    key = (metric.namespace, metric.name, cloudwatch._dims_key(dict(metric.dimensions)))
    periods: dict[int, list[Any]] = {}
    for point in cloudwatch._metrics.get(key) or ():
        if since <= point["Timestamp"] < until:
            begin = int(point["Timestamp"] // period) * period
            periods.setdefault(begin, []).append(point)
    values = {
        at: cloudwatch._stat_value(cloudwatch._calc_stats(points), statistic, points)
        for at, points in periods.items()
    }
    return {at: float(value) for at, value in values.items() if value is not None}


def set_alarm_state(region: str, name: str, state: str, reason: str, data: str) -> None:
    """Move an alarm to a state with its history and SNS actions, as SetAlarmState does."""
    from ministack.services import cloudwatch

    wanted = {
        "AlarmName": name,
        "StateValue": state,
        "StateReason": reason,
        "StateReasonData": data,
    }
    with in_region(region):
        cloudwatch._set_alarm_state({}, wanted, is_cbor=False, is_json=True)


def forget_before(region: str, at: datetime) -> None:
    """Drop a region's data points and log streams from before; MiniStack keeps both for good.

    What was sent to a queue stays, one point for each call: `simulate` asks for weeks of it.
    """
    from ministack.services import cloudwatch, cloudwatch_logs

    first, gone = at.timestamp(), set()
    with in_region(region):
        for key, points in list(cloudwatch._metrics.items()):
            if key[1] != SENT:
                cloudwatch._metrics[key] = [each for each in points if each["Timestamp"] >= first]
        for group, logs in cloudwatch_logs._log_groups.items():
            for name, stream in list(logs["streams"].items()):
                if (stream["lastEventTimestamp"] or stream["creationTime"]) < 1000 * first:
                    gone.add((group, name))
                    del logs["streams"][name]
        for pointer, record in list(cloudwatch_logs._log_records.items()):
            if (record.get("@log"), record.get("@logStream")) in gone:
                del cloudwatch_logs._log_records[pointer]


def recording(append: Any) -> Any:
    """Return the log store's append that also extracts embedded metrics, as CloudWatch does."""

    def append_and_extract(stream: Any, events: Sequence[Mapping[str, Any]]) -> None:
        append(stream, events)
        for event in events:
            if '"_aws"' in event["message"]:
                _extract(event["message"])

    return append_and_extract


def _extract(message: str) -> None:
    from ministack.services import cloudwatch

    for namespace, name, dimensions, value, at in embedded_metrics(message):
        values = value if isinstance(value, list) else None
        cloudwatch._store_datum(namespace, name, dimensions, at, "None", value, values, None, None)
