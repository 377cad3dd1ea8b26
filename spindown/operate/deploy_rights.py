"""What a deploy's execution role needs, and what bounds the roles that it makes, by its templates.

``cdk bootstrap`` makes the role with which CloudFormation acts. What a type of resource asks of it
is what CloudFormation's registry tells of the type (``resource_rights.json``, which
``tools/resource_rights.py`` writes).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from spindown.error import BadInput
from spindown.operate.iam_policy import Statement, Whose, allow

#: Characters of a managed policy (AWS IAM User Guide, "IAM and AWS STS quotas").
POLICY_CHARACTERS_MAX = 6_144

Template = Mapping[str, Any]
Policy = Mapping[str, Any]

#: What is made of types that the registry does not know: a custom resource is a function's call.
_CUSTOM = "Custom::"
#: Takes no resource, and changes nothing.
_LOOKS = re.compile(r"[a-z0-9-]+:(Describe|List)")
#: Of users and groups, whom no template makes.
_OF_PEOPLE = re.compile(r"iam:\w+(Group|User)")
#: Services whose resources bear a name. The rest of EC2 and FIS bears ids.
_NAMED: Mapping[str, Sequence[str]] = {
    "athena": ("workgroup/spindown-{name}",),
    "cloudwatch": ("alarm:{begins}", "dashboard/{begins}", "dashboard/{name}"),
    "dynamodb": ("table/{begins}",),
    "events": ("rule/{begins}",),
    "glue": ("catalog", "database/spindown_{snake}", "table/spindown_{snake}/*"),
    "imagebuilder": ("*/{begins}",),
    "lambda": ("function:{begins}",),
    "logs": ("log-group:/spindown/{name}/*", "log-group:/aws/imagebuilder/{begins}"),
    "scheduler": ("schedule/default/{begins}",),
    "sns": ("{begins}",),
    "sqs": ("{begins}",),
    "ssm": ("parameter/spindown/{name}/*", "parameter/cdk-bootstrap/{qualifier}/version"),
}
#: Services whose resources bear ids that nobody knows before.
_BY_ID = ("ec2", "fis")
#: Actions that take no resource (Service Authorization Reference, Amazon CloudWatch Logs).
_WITHOUT_RESOURCE = frozenset(
    f"logs:{action}{what}"
    for action in ("Put", "Delete")
    for what in ("QueryDefinition", "ResourcePolicy")
)
#: Characters that are kept of a stack's name in the names that CloudFormation makes.
_KEPT_OF_STACK = 20


def execution(whose: Whose, templates: Sequence[Template]) -> Mapping[str, Policy]:
    """Return the policies of the execution role, by the names to give them.

    One policy has no room for all. Raises BadInput for a type whose rights are not known.
    """
    asked = {action for kind in types_of(templates) for action in rights_of(kind)}
    actions = {one for one in asked if not _OF_PEOPLE.match(one)}
    by_service: dict[str, list[str]] = {}
    for action in sorted(actions):
        by_service.setdefault(action.partition(":")[0], []).append(action)
    made = {kind.split("::")[1].lower() for kind in types_of(templates)}
    statements = [
        *_look(whose, by_service),
        *(
            _change(whose, service, own)
            for service, own in by_service.items()
            if service in made & _NAMED.keys()
        ),
        *_change_by_id(whose, [one for name in _BY_ID for one in by_service.get(name, [])]),
        *_keep_bucket(whose, by_service.get("s3", [])),
        *_keep_roles(whose, by_service.get("iam", [])),
        *_use_keys(whose, by_service.get("kms", [])),
        *_read_outputs(whose, templates),
    ]
    return {
        f"{whose.deployment}-execution-{number}": _policy(part)
        for number, part in enumerate(_split(statements), 1)
    }


def boundary(whose: Whose, templates: Sequence[Template]) -> Policy:
    """Return a permissions boundary: the actions of all roles of the templates, and no other.

    Which resources, each role's own policy says; here only what could give rights is bounded.
    """
    asked = {
        action for one in role_statements(templates) for action in _listed(one.get("Action", []))
    }
    gives = sorted(one for one in asked if one.startswith("iam:"))
    bounded = {
        "iam:CreateServiceLinkedRole": _roles(whose, "/aws-service-role/*"),
        "iam:PassRole": _own_roles(whose),
    }
    return _policy(
        [
            allow("Work", sorted(asked - {*gives}), ["*"]),
            *(allow(one.partition(":")[2], [one], [bounded[one]]) for one in gives),
        ]
    )


def types_of(templates: Sequence[Template]) -> list[str]:
    """Return the types of resources of templates."""
    return sorted({one["Type"] for each in templates for one in each["Resources"].values()})


def rights_of(kind: str) -> Sequence[str]:
    """Return the actions by which a type is made, read, changed and deleted (raises BadInput)."""
    if kind.startswith(_CUSTOM):
        return ["lambda:InvokeFunction"]
    known = _known()
    if kind not in known:
        remedy = "take its resource out, or write a policy for it: its rights are not known here"
        raise BadInput("resource type", kind, remedy)
    return known[kind]


def role_statements(templates: Sequence[Template]) -> Iterator[Mapping[str, Any]]:
    """Yield each statement of each policy of a role of the templates."""
    for each in templates:
        for one in each["Resources"].values():
            inside = one.get("Properties", {})
            documents = [inside] if "PolicyDocument" in inside else inside.get("Policies", [])
            if one["Type"] in {"AWS::IAM::ManagedPolicy", "AWS::IAM::Policy", "AWS::IAM::Role"}:
                for document in documents:
                    yield from _listed(document["PolicyDocument"]["Statement"])


@cache
def _known() -> Mapping[str, Sequence[str]]:
    text = files("spindown.operate").joinpath("resource_rights.json").read_text(encoding="utf-8")
    known: Mapping[str, Sequence[str]] = json.loads(text)
    return known


def _look(whose: Whose, by_service: Mapping[str, Sequence[str]]) -> list[Statement]:
    """Allow what takes no resource; IAM and S3 are asked by name, and have no region."""
    looks = [
        one
        for service, own in by_service.items()
        for one in own
        if service not in {"iam", "s3"} and (_LOOKS.match(one) or one in _WITHOUT_RESOURCE)
    ]
    return [allow("Look", looks, ["*"], _regions(whose))]


def _change(whose: Whose, service: str, actions: Sequence[str]) -> Statement:
    resources = [
        f"arn:aws:{service}:*:{whose.account}:{pattern.format(**_words(whose))}"
        for pattern in _NAMED[service]
    ]
    if service == "imagebuilder":
        # AWS's own components, which a recipe names.
        resources.append("arn:aws:imagebuilder:*:aws:*")
    own = [one for one in actions if not _LOOKS.match(one) and one not in _WITHOUT_RESOURCE]
    return allow(service.capitalize(), own, resources, _regions(whose))


def _change_by_id(whose: Whose, actions: Sequence[str]) -> list[Statement]:
    changes = [one for one in actions if not _LOOKS.match(one)]
    return [allow("ChangeById", changes, ["*"], _regions(whose))] if changes else []


def _keep_bucket(whose: Whose, actions: Sequence[str]) -> list[Statement]:
    if not actions:
        return []
    archives = [
        f"arn:aws:s3:::cdk-{whose.qualifier}-assets-{whose.account}-{region}/*"
        for region in whose.regions
    ]
    return [
        allow("KeepBucket", actions, [*whose.objects(), *whose.objects("*")]),
        allow("ReadArchives", ["s3:GetObject", "s3:GetObjectVersion"], archives),
    ]


#: What gives a role rights: with a boundary only to one that has it.
_GIVES = frozenset(
    f"iam:{action}"
    for action in (
        "AttachRolePolicy",
        "CreateRole",
        "PutRolePermissionsBoundary",
        "PutRolePolicy",
    )
)


def _keep_roles(whose: Whose, actions: Sequence[str]) -> list[Statement]:
    """Allow roles, policies and profiles of the deployment alone, and no role without boundary."""
    linked = "iam:CreateServiceLinkedRole"
    free = "iam:DeleteRolePermissionsBoundary"
    own = [
        f"arn:aws:iam::{whose.account}:{kind}{whose.role_path}{_role_begins(whose)}"
        for kind in ("role", "policy", "instance-profile")
    ]
    rest = [one for one in actions if one != linked]
    found = []
    if whose.boundary_arn is not None:
        bounded = {"StringEquals": {"iam:PermissionsBoundary": whose.boundary_arn}}
        gives = sorted(_GIVES & {*rest})
        rest = [one for one in rest if one not in _GIVES and one != free]
        found = [allow("KeepBoundedRoles", gives, [_own_roles(whose)], bounded)]
    return [
        *found,
        allow("KeepRoles", rest, own),
        allow("MakeRolesOfAws", [linked], [_roles(whose, "/aws-service-role/*")]),
    ]


def _use_keys(whose: Whose, actions: Sequence[str]) -> list[Statement]:
    used = [one for one in actions if not _LOOKS.match(one) or one == "kms:DescribeKey"]
    return [allow("UseKeys", used, whose.key_arns)] if whose.key_arns and used else []


def _read_outputs(whose: Whose, templates: Sequence[Template]) -> list[Statement]:
    """Allow what one stack reads of another: CloudFormation asks for it as this role."""
    if "Fn::GetStackOutput" not in json.dumps(templates):
        return []
    stacks = f"arn:aws:cloudformation:*:{whose.account}:stack/{whose.deployment}-*/*"
    return [allow("ReadOutputs", ["cloudformation:DescribeStacks"], [stacks])]


def _own_roles(whose: Whose) -> str:
    return _roles(whose, f"{whose.role_path}{_role_begins(whose)}")


def _roles(whose: Whose, below: str) -> str:
    return f"arn:aws:iam::{whose.account}:role{below}"


def _role_begins(whose: Whose) -> str:
    return f"{whose.role_name_prefix}{_begins(whose)}"


def _begins(whose: Whose) -> str:
    """Return how every name begins, given or made by CloudFormation of the stack's."""
    return f"{whose.deployment}-"[:_KEPT_OF_STACK] + "*"


def _words(whose: Whose) -> Mapping[str, str]:
    return {
        "name": whose.deployment,
        "begins": _begins(whose),
        "snake": whose.deployment.replace("-", "_"),
        "qualifier": whose.qualifier,
    }


def _regions(whose: Whose) -> Mapping[str, Any]:
    return {"StringEquals": {"aws:RequestedRegion": list(whose.regions)}}


def _split(statements: Sequence[Statement]) -> list[list[Statement]]:
    """Divide the statements, in their order, among as few policies as have room for them."""
    parts: list[list[Statement]] = [[]]
    for one in statements:
        if len(json.dumps(_policy([*parts[-1], one]), separators=(",", ":"))) > (
            POLICY_CHARACTERS_MAX
        ):
            parts.append([])
        parts[-1].append(one)
    return parts


def _policy(statements: Sequence[Statement]) -> Policy:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
