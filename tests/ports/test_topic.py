"""What a person is told arrives, word for word, in memory and on SNS."""

from collections.abc import Iterator

import boto3
import pytest

from spindown.aws.wiring import Aws
from spindown.error import NotFound
from spindown.memory import MemoryTopic

TEXT = "A quota is full: 8 of 8 vCPUs. To do: ask for more, or widen `gpu_names`."


@pytest.fixture
def inbox(session: boto3.Session) -> Iterator[tuple[str, str]]:
    """Make a topic and a queue that hears it; (ARN of the topic, URL of the queue)."""
    sqs, sns = session.client("sqs"), session.client("sns")
    url = sqs.create_queue(QueueName="inbox")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    arn = sns.create_topic(Name="lab--alarms")["TopicArn"]
    queue_arn = attributes["Attributes"]["QueueArn"]
    raw = {"RawMessageDelivery": "true"}
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue_arn, Attributes=raw)
    yield arn, url
    sns.delete_topic(TopicArn=arn)
    sqs.delete_queue(QueueUrl=url)


def test_sns_carries_a_text_to_who_has_subscribed(
    session: boto3.Session, aws: Aws, inbox: tuple[str, str]
) -> None:
    arn, url = inbox

    aws.topic(arn).publish("lab--ocr: quota", TEXT)

    (message,) = session.client("sqs").receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == TEXT


def test_a_topic_that_there_is_not_is_said(aws: Aws) -> None:
    topic = aws.topic("arn:aws:sns:us-east-1:123456789012:gone")

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
