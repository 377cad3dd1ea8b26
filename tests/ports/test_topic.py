"""What a person is told arrives, word for word, in memory and on SNS."""

import json

import boto3
import pytest

from spindown.aws.wiring import Aws
from spindown.error import NotFound
from spindown.memory import MemoryTopic
from tests.ports.real_account import PREFIX, TAG_LIST, TAGS

TEXT = "A quota is full: 8 of 8 vCPUs. To do: ask for more, or widen `gpu_names`."


@pytest.fixture(scope="module")
def inbox(session: boto3.Session) -> tuple[str, str]:
    """Make a topic and a queue that hears it; (ARN of the topic, URL of the queue)."""
    sqs, sns = session.client("sqs"), session.client("sns")
    arn = sns.create_topic(Name=PREFIX, Tags=TAG_LIST)["TopicArn"]
    queue_arn = arn.replace(":sns:", ":sqs:")
    allowed = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": arn}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    made = sqs.create_queue(QueueName=PREFIX, Attributes={"Policy": policy}, tags=TAGS)
    url = made["QueueUrl"]
    raw = {"RawMessageDelivery": "true"}
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue_arn, Attributes=raw)
    return arn, url


def test_sns_carries_a_text_to_who_has_subscribed(
    session: boto3.Session, aws: Aws, inbox: tuple[str, str]
) -> None:
    arn, url = inbox

    aws.topic(arn).publish("lab--ocr: quota", TEXT)

    (message,) = session.client("sqs").receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    assert message["Body"] == TEXT


def test_a_topic_that_there_is_not_is_said(aws: Aws, inbox: tuple[str, str]) -> None:
    topic = aws.topic(f"{inbox[0]}-gone")

    with pytest.raises(NotFound):
        topic.publish("lab--ocr: quota", TEXT)


def test_memory_keeps_what_was_said() -> None:
    topic = MemoryTopic()
    topic.publish("lab--ocr: quota", TEXT)

    assert topic.said == (("lab--ocr: quota", TEXT),)


@pytest.mark.parametrize("subject", ["", "x" * 101, "caf\u00e9", "two\nlines"], ids=repr)
def test_memory_takes_no_subject_that_sns_would_refuse(subject: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        MemoryTopic().publish(subject, TEXT)
