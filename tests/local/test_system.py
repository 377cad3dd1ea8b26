import http.client
import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spindown.aws.clock import SystemClock
from spindown.aws.cloudwatch import CloudWatchTrafficHistory
from spindown.cli.main import main
from spindown.error import BadInput
from spindown.local import emulator
from spindown.local.gateway import bind
from spindown.local.monitor import Monitor
from spindown.local.schedule import Ticker
from spindown.local.system import LocalSystem
from tests.local.waiting import until
from tests.local.world import ROLE, Recorder, a_system, launch, write_config

TICK = timedelta(seconds=0.4)

SENT_AND_DEPTHS = {
    "ApproximateNumberOfMessagesVisible",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateAgeOfOldestMessage",
    "NumberOfMessagesSent",
}

#: Reads its own id from the metadata service as a worker does, then powers itself off.
GUEST = """
import os, shlex, subprocess, time, urllib.request
base = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"] + "/latest/"
def read(path, headers, method="GET"):
    request = urllib.request.Request(base + path, headers=headers, method=method)
    return urllib.request.urlopen(request).read().decode()
token = read("api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
print("I am", read("meta-data/instance-id", {"X-aws-ec2-metadata-token": token}), flush=True)
import boto3
sqs = boto3.client("sqs", region_name="us-east-1")
print("Queues:", len(sqs.list_queues()["QueueUrls"]), flush=True)
subprocess.run(shlex.split(os.environ["SPINDOWN_POWEROFF"]))
time.sleep(60)
"""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSystem]:
    """One system for the module: MiniStack has one state for the process."""
    directory = tmp_path_factory.mktemp("system")
    guest = (sys.executable, "-c", GUEST)
    with a_system(write_config(directory), tick=TICK, guest=guest) as started:
        yield started


@pytest.fixture
def recorder(system: LocalSystem, request: pytest.FixtureRequest) -> Recorder:
    return Recorder(system, request.node.name[-40:].replace("[", "-").replace("]", ""))


def put_alarm(system: LocalSystem, name: str, queue: str, action: str) -> None:
    system.client("cloudwatch").put_metric_alarm(
        AlarmName=name,
        Namespace="AWS/SQS",
        MetricName="ApproximateNumberOfMessagesVisible",
        Dimensions=[{"Name": "QueueName", "Value": queue}],
        Statistic="Maximum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="notBreaching",
        AlarmActions=[action],
    )


def let_alarms_invoke(system: LocalSystem, recorder: Recorder, names: str = "*") -> None:
    system.client("lambda").add_permission(
        FunctionName=recorder.arn,
        StatementId="alarms",
        Action="lambda:InvokeFunction",
        Principal="lambda.alarms.cloudwatch.amazonaws.com",
        SourceArn=f"arn:aws:cloudwatch:us-east-1:000000000000:alarm:{names}",
    )


def state_of(system: LocalSystem, alarm: str) -> str:
    (found,) = system.client("cloudwatch").describe_alarms(AlarmNames=[alarm])["MetricAlarms"]
    return str(found["StateValue"])


def test_a_stack_is_told_of_once_nothing_changes_it(system: LocalSystem) -> None:
    never = {"Handle": {"Ref": "Handle"}, "Timeout": "1"}
    resources = {
        "Handle": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
        "Wait": {"Type": "AWS::CloudFormation::WaitCondition", "Properties": never},
    }
    cloudformation = system.client("cloudformation")
    text = json.dumps({"Resources": resources})
    cloudformation.create_stack(StackName="waits", TemplateBody=text, OnFailure="DO_NOTHING")

    (stack,) = cloudformation.describe_stacks(StackName="waits")["Stacks"]

    assert stack["StackStatus"] == "CREATE_FAILED"


def test_a_full_queue_turns_its_own_alarm_and_no_other(
    system: LocalSystem, recorder: Recorder
) -> None:
    sqs = system.client("sqs")
    full = sqs.create_queue(QueueName="full")["QueueUrl"]
    sqs.create_queue(QueueName="empty")
    let_alarms_invoke(system, recorder)
    put_alarm(system, "of-full", "full", recorder.arn)
    put_alarm(system, "of-empty", "empty", recorder.arn)
    until(lambda: state_of(system, "of-full") == state_of(system, "of-empty") == "OK")
    sqs.send_message(QueueUrl=full, MessageBody="work")
    (event,) = until(recorder.events)
    assert event["alarmData"]["alarmName"] == "of-full"
    assert event["alarmData"]["state"]["value"] == "ALARM"
    assert event["alarmData"]["previousState"]["value"] == "OK"
    (metric,) = event["alarmData"]["configuration"]["metrics"]
    assert metric["metricStat"]["metric"]["dimensions"] == {"QueueName": "full"}
    assert state_of(system, "of-empty") == "OK"
    sqs.purge_queue(QueueUrl=full)
    until(lambda: state_of(system, "of-full") == "OK")
    assert recorder.events() == []


def test_an_alarm_that_no_permission_names_invokes_nothing(
    system: LocalSystem, recorder: Recorder
) -> None:
    sqs = system.client("sqs")
    url = sqs.create_queue(QueueName="unpermitted")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="work")
    let_alarms_invoke(system, recorder, "others-*")
    put_alarm(system, "unpermitted", "unpermitted", recorder.arn)
    until(lambda: state_of(system, "unpermitted") == "ALARM")
    log = system.state.log_path("system")
    until(lambda: "alarm unpermitted may not invoke" in log.read_text(encoding="utf-8"))
    assert recorder.events() == []


def test_the_metrics_of_a_queue_are_those_that_sqs_publishes(system: LocalSystem) -> None:
    sqs = system.client("sqs")
    url = sqs.create_queue(QueueName="measured")["QueueUrl"]
    for _ in range(3):
        sqs.send_message(QueueUrl=url, MessageBody="work")
    sqs.receive_message(QueueUrl=url)

    def depths() -> dict[str, int]:
        found = system.gateway.call(
            lambda: [
                one
                for one in emulator.queue_depths("us-east-1", system.market.now())
                if one.name == "measured"
            ]
        )
        return {"visible": found[0].visible, "in_flight": found[0].in_flight}

    assert depths() == {"visible": 2, "in_flight": 1}
    metrics = system.client("cloudwatch").list_metrics

    def names() -> set[str]:
        asked = [{"Name": "QueueName", "Value": "measured"}]
        return {one["MetricName"] for one in metrics(Dimensions=asked)["Metrics"]}

    assert until(lambda: names() == SENT_AND_DEPTHS)


def test_a_queue_keeps_its_metrics_as_cloudwatch_does(system: LocalSystem) -> None:
    sqs, cloudwatch = system.client("sqs"), system.client("cloudwatch")
    url = sqs.create_queue(QueueName="remembered")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="work")
    entries = [{"Id": f"{n}", "MessageBody": "work"} for n in range(3)]
    sqs.send_message_batch(QueueUrl=url, Entries=entries)
    sqs.purge_queue(QueueUrl=url)

    clock = SystemClock()
    now = clock.now()
    past = CloudWatchTrafficHistory(cloudwatch, clock).sent(
        "remembered", since=now - timedelta(hours=1), until=now + timedelta(minutes=1)
    )
    assert sum(each.messages for each in past) == 4


def test_what_is_long_past_is_forgotten_but_the_traffic(
    system: LocalSystem, recorder: Recorder
) -> None:
    sqs, logs = system.client("sqs"), system.client("logs")
    url = sqs.create_queue(QueueName="long-ago")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="work")
    system.client("lambda").invoke(FunctionName=recorder.arn, Payload=b"{}")
    group = f"/aws/lambda/{recorder.arn.rpartition(':')[2]}"
    at = [system.market.now()]
    monitor = Monitor(region="us-east-1", tick=TICK, invoke=print, clock=lambda: at[0])

    def left() -> tuple[set[str], int]:
        asked = [{"Name": "QueueName", "Value": "long-ago"}]
        metrics = system.client("cloudwatch").list_metrics(Dimensions=asked)["Metrics"]
        streams = logs.describe_log_streams(logGroupName=group)["logStreams"]
        return {each["MetricName"] for each in metrics}, len(streams)

    def put() -> None:
        emulator.put_metric("us-east-1", "Spindown", "Items", 1.0, {"QueueName": "long-ago"})
        monitor.evaluate()

    system.gateway.call(put)
    assert left() == ({*SENT_AND_DEPTHS, "Items"}, 1)
    at[0] += timedelta(hours=3)
    system.gateway.call(monitor.evaluate)
    names, streams = left()
    # The system's own monitor goes on measuring depths.
    assert ("Items" in names, "NumberOfMessagesSent" in names, streams) == (False, True, 0)


def test_a_schedule_fires_its_input_at_the_local_pace(
    system: LocalSystem, recorder: Recorder
) -> None:
    scheduler = system.client("scheduler")
    scheduler.create_schedule(
        Name="tick",
        ScheduleExpression="rate(1 minute)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": recorder.arn, "RoleArn": ROLE, "Input": json.dumps({"tick": True})},
    )
    try:
        events: list[dict[str, Any]] = []

        def seen() -> bool:
            events.extend(recorder.events())
            return len(events) >= 3

        until(seen)
        assert events[0] == {"tick": True}
    finally:
        scheduler.delete_schedule(Name="tick")


def test_schedules_of_one_rate_take_turns(system: LocalSystem, recorder: Recorder) -> None:
    scheduler, names = system.client("scheduler"), [f"turn-{number}" for number in range(6)]
    for name in names:
        scheduler.create_schedule(
            Name=name,
            ScheduleExpression="rate(1 minute)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": recorder.arn, "RoleArn": ROLE, "Input": json.dumps(name)},
        )
    ticker = Ticker(tick=timedelta(seconds=60), invoke=print, clock=system.market.now)
    try:
        fired = [
            system.gateway.call(partial(due, ticker, at, frozenset(names))) for at in range(121)
        ]
    finally:
        for name in names:
            scheduler.delete_schedule(Name=name)

    times = {name: [at for at, each in enumerate(fired) if name in each] for name in names}
    assert {second - first for first, second in times.values()} == {60}
    assert max(map(len, fired)) == 1


def due(ticker: Ticker, at: float, names: frozenset[str]) -> list[str]:
    """Return which of these fire at a moment."""
    return [name for one in ticker.due(at) if (name := json.loads(one.payload)) in names]


def test_a_rule_by_rate_fires_its_input_at_the_local_pace(
    system: LocalSystem, recorder: Recorder
) -> None:
    rules = system.client("events")
    rules.put_rule(Name="tick", ScheduleExpression="rate(1 minute)")
    target = {"Id": "one", "Arn": recorder.arn, "Input": json.dumps({"spare": True})}
    rules.put_targets(Rule="tick", Targets=[target])
    try:
        events: list[dict[str, Any]] = []

        def seen() -> bool:
            events.extend(recorder.events())
            return len(events) >= 3

        until(seen)
        assert events[0] == {"spare": True}
    finally:
        rules.remove_targets(Rule="tick", Ids=["one"])
        rules.delete_rule(Name="tick")


def test_a_functions_embedded_metrics_can_be_read(system: LocalSystem) -> None:
    logs = system.client("logs")
    logs.create_log_group(logGroupName="group")
    logs.create_log_stream(logGroupName="group", logStreamName="stream")
    now = int(system.market.now().timestamp() * 1000)
    line = {
        "_aws": {
            "Timestamp": now,
            "CloudWatchMetrics": [
                {
                    "Namespace": "Spindown",
                    "Dimensions": [["Workload"]],
                    "Metrics": [{"Name": "Items", "Unit": "Count"}],
                }
            ],
        },
        "Workload": "classify",
        "Items": 7,
    }
    broken = {**line, "_aws": {"CloudWatchMetrics": "nonsense"}}
    logs.put_log_events(
        logGroupName="group",
        logStreamName="stream",
        logEvents=[
            {"timestamp": now, "message": json.dumps(one)} for one in (line, broken, {"_aws": 1})
        ],
    )
    answer = system.client("cloudwatch").get_metric_statistics(
        Namespace="Spindown",
        MetricName="Items",
        Dimensions=[{"Name": "Workload", "Value": "classify"}],
        StartTime=system.market.now() - timedelta(minutes=1),
        EndTime=system.market.now() + timedelta(minutes=1),
        Period=60,
        Statistics=["Sum"],
    )
    assert [point["Sum"] for point in answer["Datapoints"]] == [7.0]


def test_functions_reach_every_service_at_the_one_endpoint(
    system: LocalSystem, recorder: Recorder
) -> None:
    answer = system.client("lambda").invoke(FunctionName=recorder.arn, Payload=b'{"a": 1}')
    assert json.loads(answer["Payload"].read()) == {"endpoint": system.endpoint}
    assert until(recorder.events) == [{"a": 1}]


#: Tells that it has begun, and once more when it is told to go on.
SLOW = """
import os
import boto3

def handler(event, context):
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=os.environ["AWS_LAMBDA_FUNCTION_NAME"])["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody='{"has": "begun"}')
    while "Messages" not in sqs.receive_message(QueueUrl=url + "-go", WaitTimeSeconds=1):
        pass
    sqs.send_message(QueueUrl=url, MessageBody='{"has": "ended"}')
"""


def test_a_function_that_begins_anew_ends_what_it_does(system: LocalSystem) -> None:
    sqs, slow = system.client("sqs"), Recorder(system, "slow", SLOW)
    go = sqs.create_queue(QueueName="slow-go")["QueueUrl"]
    system.client("lambda").invoke(FunctionName=slow.arn, InvocationType="Event")
    assert until(slow.events) == [{"has": "begun"}]

    system.gateway.call(emulator.renew_functions)

    sqs.send_message(QueueUrl=go, MessageBody="go")
    emulator.await_old_functions()
    assert slow.events() == [{"has": "ended"}]


def test_an_instance_runs_its_guest_sends_events_and_ends(
    system: LocalSystem, recorder: Recorder
) -> None:
    events = system.client("events")
    pattern = {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Instance State-change Notification"],
        "detail": {"state": ["running"]},
    }
    events.put_rule(Name="running", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="running", Targets=[{"Id": "1", "Arn": recorder.arn}])
    instance_id = launch(system)
    (event,) = until(recorder.events)
    assert event["detail"] == {"instance-id": instance_id, "state": "running"}
    assert event["source"] == "aws.ec2"

    def state() -> str:
        (one,) = (one for one in system.status().instances if one.instance_id == instance_id)
        return one.state

    until(lambda: state() == "terminated", seconds=30)
    console = system.hypervisor.console(instance_id)
    assert f"I am {instance_id}" in console
    assert "Queues: " in console


def test_no_results_are_lost_before_somebody_is_asked(
    system: LocalSystem, capsys: pytest.CaptureFixture[str]
) -> None:
    s3, command = system.client("s3"), ["local", "down", "--state", str(system.state.path)]
    s3.create_bucket(Bucket="kept")
    s3.put_object(Bucket="kept", Key="workloads/count/jobs/j/manifest.json", Body=b"{}")
    # Who is not asked ends this very process.
    assert system.with_jobs() == ("count",)
    with pytest.raises(SystemExit) as ended:
        main(command)
    s3.delete_object(Bucket="kept", Key="workloads/count/jobs/j/manifest.json")

    assert ended.value.code == 1
    assert "count" in capsys.readouterr().err
    assert system.state.holder() is not None


def test_tells_its_status_over_the_endpoint(system: LocalSystem) -> None:
    system.client("sqs").create_queue(QueueName="told")
    connection = http.client.HTTPConnection("127.0.0.1", system.gateway.port, timeout=10)
    try:
        connection.request("GET", "/_spindown/status")
        told = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    assert told["deployment"] == "test"
    assert "told" in [queue["name"] for queue in told["queues"]]


def test_a_second_system_in_the_same_directory_is_refused(system: LocalSystem) -> None:
    second = LocalSystem(system.config_path, state=system.state.path, port=0)
    with pytest.raises(BadInput, match="a local system runs there already"):
        second.up()


def test_a_region_that_the_scenario_lacks_is_refused(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    text = path.read_text(encoding="utf-8").replace("us-east-1", "ap-south-2")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=r"deployment.region is 'ap-south-2'"):
        LocalSystem(path, state=tmp_path / "state")


def test_an_occupied_port_leaves_nothing_behind(tmp_path: Path) -> None:
    with bind(0) as taken:
        port = taken.getsockname()[1]
        system = LocalSystem(write_config(tmp_path), state=tmp_path / "state", port=port)
        with pytest.raises(BadInput, match="choose a port that no other program listens on"):
            system.up()
    assert system.state.holder() is None
