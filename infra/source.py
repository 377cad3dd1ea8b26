"""Sources of a workload: rules by which S3's events of new objects come to its queue."""

from collections.abc import Mapping

from aws_cdk import aws_events as events
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spindown.config.schema import SourceConfig
from spindown.infra.shared.resources import take_events


def add_source(
    scope: Construct,
    construct_id: str,
    source: SourceConfig,
    queue: sqs.Queue,
    dead_letters: sqs.Queue,
) -> events.CfnRule:
    """Add, and return, the rule that puts S3's events of a source on a queue, as they are.

    What the queue has refused for a day becomes a dead letter. The bucket stays as it is: whoever
    owns it turns EventBridge on there.
    """
    keys = key_pattern(source.prefix, source.suffix)
    detail: dict[str, object] = {"bucket": {"name": [source.bucket]}}
    rule = events.CfnRule(
        scope,
        construct_id,
        description=f"Jobs of s3://{source.bucket}/{source.prefix}"[:_DESCRIPTION_CHARACTERS],
        event_pattern={
            "source": ["aws.s3"],
            "detail-type": ["Object Created"],
            "detail": detail if keys is None else {**detail, "object": {"key": [keys]}},
        },
        targets=[
            events.CfnRule.TargetProperty(
                id="queue",
                arn=queue.queue_arn,
                dead_letter_config=events.CfnRule.DeadLetterConfigProperty(
                    arn=dead_letters.queue_arn
                ),
            )
        ],
    )
    # CDK's own target lets every rule of the account send to a queue that a key encrypts.
    for one in (queue, dead_letters):
        take_events(one, f"TakeEventsOf{construct_id}", [rule])
    return rule


#: Of a rule (Amazon EventBridge API Reference, "PutRule").
_DESCRIPTION_CHARACTERS = 512


def key_pattern(prefix: str, suffix: str) -> Mapping[str, str] | None:
    """Return EventBridge's pattern of keys that begin and end so; None: any key.

    Two conditions in one list mean either of them, so both together are one wildcard (Amazon
    EventBridge User Guide, "Comparison operators").
    """
    if prefix and suffix:
        ends = (text.replace("\\", "\\\\").replace("*", "\\*") for text in (prefix, suffix))
        return {"wildcard": "*".join(ends)}
    if suffix:
        return {"suffix": suffix}
    return {"prefix": prefix} if prefix else None
