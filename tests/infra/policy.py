"""Reads a synthesised template as IAM would: may this role make this call?

Only what our own statements use is understood, and anything else is an error: a condition that
were passed over would make every test that rests on it true.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.infra.assembly import Assembly, listed

ACCOUNT = "111122223333"
REGION = "eu-west-1"
STORE = "arn:aws:s3:::store"

_PSEUDO = {"AWS::AccountId": ACCOUNT, "AWS::Partition": "aws", "AWS::Region": REGION}
_KEYS = {"Action", "Condition", "Effect", "Resource", "Sid"}
#: CDK ends a logical id with eight digits of a hash.
_HASH = re.compile(r"[0-9A-F]{8}$")


@dataclass(frozen=True)
class Call:
    """One thing that IAM is asked: an action on a resource, and what is known of the request."""

    action: str
    resource: str = "*"
    context: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Name it for pytest."""
        known = " ".join(f"{key}={','.join(values)}" for key, values in self.context.items())
        return f"{self.action} {self.resource} {known}".strip()


def ours(service: str, resource: str) -> str:
    """Return the ARN of something of our account and region."""
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"


@dataclass(frozen=True)
class Statement:
    """One statement, its references replaced by what they will be."""

    sid: str
    actions: Sequence[str]
    resources: Sequence[str]
    conditions: Mapping[str, Mapping[str, Sequence[str]]]

    def allows(self, call: Call) -> bool:
        """Tell whether it is about a call: whether it allows it, or denies it."""
        return (
            call.action in self.actions
            and any(matches(pattern, call.resource) for pattern in self.resources)
            and all(
                _holds(operator, call.context.get(key), wanted)
                for operator, keys in self.conditions.items()
                for key, wanted in keys.items()
            )
        )


def read_statements(assembly: Assembly, role: str) -> list[Statement]:
    """Return all statements of the role whose logical id begins with ``role``."""
    return [_read(assembly, one) for one in assembly.statements(role).values()]


def read_denials(assembly: Assembly) -> list[Statement]:
    """Return what the policy of the bucket denies beside requests without TLS."""
    (bucket,) = assembly.all_of("AWS::S3::BucketPolicy")
    found = [one for one in bucket["PolicyDocument"]["Statement"] if one["Effect"] == "Deny"]
    own = [one for one in found if one["Action"] != "s3:*"]
    assert all(one["Principal"] == {"AWS": "*"} for one in own)
    return [_read(assembly, one, effect="Deny") for one in own]


def matches(pattern: str, text: str) -> bool:
    """Tell whether a text is what a pattern with ``*`` and ``?`` means.

    ``${*}``, ``${?}`` and ``${$}`` stand for the signs themselves; of other variables nothing is
    known here (IAM User Guide, "IAM policy elements: Variables and tags").
    """
    parts = re.split(r"(\$\{[^}]*\}|[*?])", pattern)
    form = "".join(_FORMS[part] if n % 2 else re.escape(part) for n, part in enumerate(parts))
    return re.fullmatch(form, text) is not None


_FORMS = {"*": ".*", "?": ".", "${*}": r"\*", "${?}": r"\?", "${$}": r"\$"}


def resolve(assembly: Assembly, value: Any) -> str:
    """Return a template's value as it will be once deployed."""
    match value:
        case str(text):
            return text
        case {"Fn::Join": [str(glue), list(parts)]}:
            return glue.join(resolve(assembly, part) for part in parts)
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{([^}]+)\}", lambda found: _PSEUDO[found[1]], text)
        case {"Ref": str(name)}:
            return _PSEUDO.get(name) or _arn(assembly, name)
        case {"Fn::GetAtt": [str(name), "Arn"]}:
            return _arn(assembly, name)
        case {"Fn::GetAtt": [str(name), str()]}:
            # An id that EC2 gives: the name tells as well which it is.
            return _HASH.sub("", name)
    raise AssertionError(f"unknown value {value}")


def _read(assembly: Assembly, raw: Mapping[str, Any], *, effect: str = "Allow") -> Statement:
    assert raw["Effect"] == effect
    assert raw.keys() <= (_KEYS if effect == "Allow" else {*_KEYS, "Principal"}), raw
    actions = listed(raw["Action"])
    assert not [action for action in actions if "*" in action]
    return Statement(
        sid=raw.get("Sid", ""),
        actions=actions,
        resources=[resolve(assembly, one) for one in listed(raw["Resource"])],
        conditions={
            operator: {
                key: [resolve(assembly, one) for one in listed(wanted)]
                for key, wanted in keys.items()
            }
            for operator, keys in raw.get("Condition", {}).items()
        },
    )


def _holds(operator: str, given: Sequence[str] | None, wanted: Sequence[str]) -> bool:
    """Evaluate a condition; on a key that the request lacks most fail."""
    set_of, _, name = operator.rpartition(":")
    values = given or ()
    if name == "Null":
        return [str(given is None).lower()] == wanted
    if name == "StringNotLike":
        return not any(matches(pattern, value) for pattern in wanted for value in values)
    if name == "Bool":
        return given == wanted
    if name == "BoolIfExists":
        return given is None or given == wanted
    assert set_of in {"", "ForAllValues"}, f"unknown operator {operator}"
    assert name in {"StringEquals", "ArnEquals", "StringLike"}, f"unknown operator {operator}"
    if not set_of:
        if given is None:
            return False
        (_,) = given
    is_like = name == "StringLike"
    return all(
        any(matches(one, value) if is_like else one == value for one in wanted) for value in values
    )


def _arn(assembly: Assembly, name: str) -> str:
    resource = assembly.resources[name]
    properties = resource.get("Properties", {})
    short = _HASH.sub("", name)
    match resource["Type"]:
        case "AWS::SNS::Topic" | "AWS::SQS::Queue" as kind:
            named = properties.get("QueueName") or properties.get("TopicName", short)
            return ours(kind.split("::")[1].lower(), named)
        case "AWS::S3::Bucket":
            return STORE
        case "AWS::DynamoDB::GlobalTable":
            return ours("dynamodb", f"table/{properties['TableName']}")
        case "AWS::Logs::LogGroup":
            return ours("logs", f"log-group:{properties['LogGroupName']}:*")
        case "AWS::IAM::Role":
            return f"arn:aws:iam::{ACCOUNT}:role/{short}"
        case "AWS::Lambda::Function":
            return ours("lambda", f"function:{properties['FunctionName']}")
    raise AssertionError(f"unknown resource {resource['Type']}")
