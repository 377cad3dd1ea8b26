"""The limits of IAM: how long a policy may be, and how many policies a role may have.

Source: AWS IAM User Guide, "IAM and AWS STS quotas".
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from spindown.config.deployment import POLICY_CHARACTERS_MAX
from spindown.error import ConfigError
from spindown.infra.parameter import ID_MOST, write_out

#: Managed policies of a role, unless the account has a higher quota.
POLICIES_MAX = 10

#: Around the statements of a policy.
_ENVELOPE = len('{"Version":"2012-10-17","Statement":[]}')

Template = Mapping[str, Any]


def split_statements(
    scope: Construct, statements: Iterable[iam.PolicyStatement]
) -> list[list[iam.PolicyStatement]]:
    """Return the statements in their order, divided into as few policies as can hold them."""
    policies: list[list[iam.PolicyStatement]] = [[]]
    used = _ENVELOPE
    for statement in statements:
        size = measure(Stack.of(scope).resolve(statement.to_statement_json())) + 1
        if policies[-1] and used + size > POLICY_CHARACTERS_MAX:
            policies.append([])
            used = _ENVELOPE
        policies[-1].append(statement)
        used += size
    return policies


def measure(document: Any) -> int:
    """Return the characters that a part of a template may have once its references are resolved."""
    written = write_out(document, lambda _: ID_MOST)
    return len(json.dumps(written, separators=(",", ":")))


def check_roles(templates: Sequence[Template], *, workloads: int, regions: int) -> None:
    """Check that no role gets more policies than IAM allows (raises ConfigError)."""
    attached = Counter(role for template in templates for role in _attachments(template))
    for role, count in attached.items():
        if count > POLICIES_MAX:
            raise ConfigError(
                "deployment.outpost",
                f"{regions} regions for {workloads} workloads",
                f"divide them among deployments: {role} would have {count} managed policies, and "
                f"IAM allows {POLICIES_MAX}",
            )


def _attachments(template: Template) -> Iterator[str]:
    """Yield each role of each managed policy of a stack: its name, or else its logical id."""
    resources = template["Resources"]
    for resource in resources.values():
        if resource["Type"] == "AWS::IAM::ManagedPolicy":
            for role in resource["Properties"]["Roles"]:
                match role:
                    case {"Ref": str(name)}:
                        yield resources[name].get("Properties", {}).get("RoleName", name)
                    case _:
                        yield str(role)
