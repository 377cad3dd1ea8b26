"""CloudWatch for the deployed queues and alarms: metrics in, changes of state out.

The emulator stores metrics and alarms; this reads what was deployed, publishes what SQS would,
and runs the actions of alarms on functions. A minute of CloudWatch is one local tick long.
"""

import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from spindown.local import alarm as rule
from spindown.local import emulator

_LOGGER = logging.getLogger(__name__)

#: AWS, "Available CloudWatch metrics for Amazon SQS".
_NAMESPACE = "AWS/SQS"
_PRINCIPAL = "lambda.alarms.cloudwatch.amazonaws.com"
_MINUTE_SECONDS = 60
#: How far metrics and logs go back, so that a system that runs overnight stays as it is: this long,
#: or as many local minutes, which is further than an alarm of a day looks back.
_KEPT_FOR = timedelta(hours=2)
_KEPT_MINUTES = 1500
_SWEPT_EVERY = timedelta(minutes=5)

#: Invokes a function asynchronously, as CloudWatch and EventBridge do.
Invoke = Callable[[str, str, bytes], None]


class Monitor:
    """Publishes queue metrics and evaluates alarms, on the event loop of the emulator."""

    def __init__(
        self,
        *,
        region: str,
        tick: timedelta,
        invoke: Invoke,
        clock: Callable[[], datetime],
    ) -> None:
        """Watch one region; `invoke` takes region, function ARN and payload, and does not block."""
        self._region = region
        self._minute = tick.total_seconds()
        self._invoke = invoke
        self._clock = clock
        self._kept_for = max(_KEPT_FOR, _KEPT_MINUTES * tick)
        self._swept_at = clock()

    def publish(self) -> None:
        """Publish the depth of every queue, by its QueueName."""
        for queue in emulator.queue_depths(self._region, self._clock()):
            values = {
                "ApproximateNumberOfMessagesVisible": queue.visible,
                "ApproximateNumberOfMessagesNotVisible": queue.in_flight,
                "ApproximateNumberOfMessagesDelayed": queue.delayed,
                "ApproximateAgeOfOldestMessage": queue.oldest_seconds,
            }
            for name, value in values.items():
                emulator.put_metric(
                    self._region, _NAMESPACE, name, value, {"QueueName": queue.name}
                )

    def evaluate(self) -> None:
        """Bring every alarm on one metric and a fixed threshold to the state its data calls for."""
        self.publish()
        self.sweep()
        for alarm in emulator.alarms(self._region):
            if alarm.get("MetricName") and alarm["ComparisonOperator"] in rule.COMPARISONS:
                self._evaluate(alarm)

    def sweep(self) -> None:
        """Forget the metrics and logs of long ago, now and then."""
        now = self._clock()
        if now - self._swept_at >= _SWEPT_EVERY:
            self._swept_at = now
            emulator.forget_before(self._region, now - self._kept_for)

    def _evaluate(self, alarm: Mapping[str, Any]) -> None:
        now = self._clock()
        values = self._values(alarm, now)
        state = rule.evaluate(alarm, values)
        if state == alarm["StateValue"]:
            return
        emulator.set_alarm_state(
            self._region,
            alarm["AlarmName"],
            state,
            rule.reason(alarm, state, values),
            rule.reason_data(alarm, values, now),
        )
        _LOGGER.info("alarm %s: %s", alarm["AlarmName"], state)
        self._act(alarm, state, now)

    def _values(self, alarm: Mapping[str, Any], now: datetime) -> list[float | None]:
        """Return the statistic of the last periods, newest first, in local minutes."""
        period = alarm["Period"] / _MINUTE_SECONDS * self._minute
        end = now.timestamp()
        looked_at = range(int(alarm["EvaluationPeriods"]) + rule.EXTRA_PERIODS)
        return [
            emulator.statistic(
                self._region, alarm, after=end - (back + 1) * period, until=end - back * period
            )
            for back in looked_at
        ]

    def _act(self, before: Mapping[str, Any], state: str, now: datetime) -> None:
        """Invoke the functions that the new state names, as far as they allow it."""
        after = next(
            one for one in emulator.alarms(self._region) if one["AlarmName"] == before["AlarmName"]
        )
        if not after.get("ActionsEnabled", True):
            return
        payload = rule.action_payload(before, after, region=self._region, now=now)
        for action in after.get(rule.ACTIONS[state]) or []:
            if not action.startswith("arn:aws:lambda:"):
                continue
            source = before["AlarmArn"]
            if not emulator.may_invoke(
                self._region, action, principal=_PRINCIPAL, source_arn=source
            ):
                name = before["AlarmName"]
                _LOGGER.error("alarm %s may not invoke %s: it has no permission", name, action)
                continue
            self._invoke(self._region, action, json.dumps(payload).encode())
