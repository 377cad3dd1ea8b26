"""A source is a rule that puts S3's events on the queue, as they are."""

import pytest

from spindown import config
from spindown.error import ConfigError
from spindown.infra.source import key_pattern
from tests.infra.assembly import CONFIG, Assembly, synthesise_once, write_project
from tests.infra.ruled import HOME_KEY
from tests.unit.config.document import with_value

_SOURCES = """
[[workload.plain.sources]]
bucket = "scans"
prefix = "in/"
suffix = ".png"
"""
_INPUTS = '[workload.plain]\ninputs = ["s3://scans/in/"]\n'


@pytest.fixture(scope="session")
def sourced(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    before, after = CONFIG.split("[workload.plain.run]")
    text = f"{before}{_INPUTS}[workload.plain.run]{after}{_SOURCES}"
    return synthesise_once(tmp_path_factory, "sources", lambda d: write_project(d, text))


@pytest.fixture(scope="session")
def encrypted(sourced: Assembly, tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    text = sourced.project.read_text().replace("zones =", f'kms_key_arn = "{HOME_KEY}"\nzones =')
    return synthesise_once(tmp_path_factory, "keyed-sources", lambda d: write_project(d, text))


def test_a_source_is_one_rule_that_leads_to_the_queue(sourced: Assembly) -> None:
    rules = [
        one for one in sourced.all_of("AWS::Events::Rule") if "s3" in str(one.get("EventPattern"))
    ]

    (rule,) = rules
    assert rule["EventPattern"] == {
        "source": ["aws.s3"],
        "detail-type": ["Object Created"],
        "detail": {"bucket": {"name": ["scans"]}, "object": {"key": [{"wildcard": "in/*.png"}]}},
    }
    (target,) = rule["Targets"]
    assert target["Arn"]["Fn::GetAtt"][0].startswith("WorkloadplainJobsQueue")
    assert target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0].startswith(
        "WorkloadplainJobsDeadLetters"
    )
    # As they are: what S3 says is what is parsed.
    assert not {"Input", "InputPath", "InputTransformer"} & target.keys()


def test_events_that_no_queue_takes_ring(sourced: Assembly) -> None:
    alarm = sourced.one_of("AWS::CloudWatch::Alarm", AlarmName="lab--plain--source-0-lost")
    (rule,) = (
        name
        for name, one in sourced.resources.items()
        if one["Type"] == "AWS::Events::Rule" and "s3" in str(one["Properties"].get("EventPattern"))
    )

    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == (
        "AWS/Events",
        "InvocationsFailedToBeSentToDlq",
        "Sum",
    )
    assert alarm["Dimensions"] == [{"Name": "RuleName", "Value": {"Ref": rule}}]
    assert (alarm["Threshold"], alarm["TreatMissingData"]) == (1, "notBreaching")
    assert len(alarm["AlarmActions"]) == 1


@pytest.mark.parametrize("kind", ["sourced", "encrypted"])
def test_only_that_rule_may_send(kind: str, request: pytest.FixtureRequest) -> None:
    made: Assembly = request.getfixturevalue(kind)
    allowed = [
        statement
        for one in made.all_of("AWS::SQS::QueuePolicy")
        if "FailedEvents" not in str(one["Queues"])
        for statement in one["PolicyDocument"]["Statement"]
        if statement["Principal"] == {"Service": "events.amazonaws.com"}
    ]

    # To the queue, and to that of its dead letters.
    assert len(allowed) == 2
    for statement in allowed:
        assert "sqs:SendMessage" in statement["Action"]
        (arn,) = statement["Condition"]["ArnEquals"].values()
        assert "Source0" in str(arn)


def test_no_queue_takes_events_of_rules_that_are_not_named(encrypted: Assembly) -> None:
    allowed = [
        statement
        for one in encrypted.all_of("AWS::SQS::QueuePolicy")
        for statement in one["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]

    assert len(allowed) > 2
    for statement in allowed:
        assert statement["Condition"]["ArnEquals"].keys() == {"aws:SourceArn"}


def test_without_sources_nothing_is_made(assembly: Assembly) -> None:
    assert "aws.s3" not in str(list(assembly.all_of("AWS::Events::Rule")))


@pytest.mark.parametrize(
    ("prefix", "suffix", "pattern"),
    [
        ("", "", None),
        ("in/", "", {"prefix": "in/"}),
        ("", ".png", {"suffix": ".png"}),
        ("in/", ".png", {"wildcard": "in/*.png"}),
        ("a*b\\c", ".png", {"wildcard": "a\\*b\\\\c*.png"}),
    ],
)
def test_keys_must_begin_and_end_so(
    prefix: str, suffix: str, pattern: dict[str, str] | None
) -> None:
    assert key_pattern(prefix, suffix) == pattern


@pytest.mark.parametrize(
    ("inputs", "source"),
    [
        ([], {"bucket": "scans"}),
        (["s3://scans/in/"], {"bucket": "scans"}),
        (["s3://scans/in/"], {"bucket": "scans", "prefix": "in"}),
        (["s3://scans/in/"], {"bucket": "others", "prefix": "in/"}),
        # Said with the slash that the prefix needs next.
        ([], {"bucket": "scans", "prefix": "in"}),
    ],
)
def test_a_source_that_no_worker_may_read_is_refused(
    inputs: list[str], source: dict[str, str]
) -> None:
    document = with_value("workload.ocr.sources", [source])
    document["workload"]["ocr"]["inputs"] = inputs

    with pytest.raises(ConfigError, match=r"add s3://\w+/(in/)? to inputs"):
        config.parse(document)


@pytest.mark.parametrize("suffix", ["", ".png"])
def test_a_source_beside_an_input_of_its_name_is_refused(suffix: str) -> None:
    source = {"bucket": "scans", "prefix": "in", "suffix": suffix}
    document = with_value("workload.ocr.sources", [source])
    document["workload"]["ocr"]["inputs"] = ["s3://scans/in"]

    # Keys of in-private/ begin so too.
    with pytest.raises(ConfigError, match=r"write the prefix in/"):
        config.parse(document)


@pytest.mark.parametrize("prefix", ["in/", "in/2026", "in/2026/"])
def test_a_source_that_inputs_cover_whole_is_taken(prefix: str) -> None:
    document = with_value("workload.ocr.sources", [{"bucket": "scans", "prefix": prefix}])
    document["workload"]["ocr"]["inputs"] = ["s3://scans/in"]

    assert config.parse(document).workload["ocr"].sources[0].prefix == prefix
