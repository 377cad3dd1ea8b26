"""Sources of a workload: rules by which S3's events of new objects come to its queue."""

from collections.abc import Mapping

from aws_cdk import aws_events as events
from aws_cdk import aws_sqs as sqs
from aws_cdk.aws_events_targets import SqsQueue
from constructs import Construct

from spindown.config.schema import SourceConfig


def add_source(
    scope: Construct,
    construct_id: str,
    source: SourceConfig,
    queue: sqs.Queue,
    dead_letters: sqs.Queue,
) -> events.Rule:
    """Add, and return, the rule that puts S3's events of a source on a queue, as they are.

    What the queue has refused for a day becomes a dead letter. The bucket stays as it is: whoever
    owns it turns EventBridge on there.
    """
    keys = key_pattern(source.prefix, source.suffix)
    detail: dict[str, object] = {"bucket": {"name": [source.bucket]}}
    return events.Rule(
        scope,
        construct_id,
        description=f"Jobs of s3://{source.bucket}/{source.prefix}"[:_DESCRIPTION_CHARACTERS],
        event_pattern=events.EventPattern(
            source=["aws.s3"],
            detail_type=["Object Created"],
            detail=detail if keys is None else {**detail, "object": {"key": [keys]}},
        ),
        targets=[SqsQueue(queue, dead_letter_queue=dead_letters)],
    )


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
