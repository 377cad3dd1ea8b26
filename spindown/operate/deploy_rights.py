"""What a deploy's execution role needs, and what bounds the roles that it makes, by its templates.

``cdk bootstrap`` makes the role with which CloudFormation acts. What a type of resource asks of it
is what CloudFormation's registry tells of the type (``resource_rights.json``, which
``tools/resource_rights.py`` writes).
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from spindown.config.deployment import KEPT_OF_STACK
from spindown.contract import tag
from spindown.contract.image import BUILDER_TAG
from spindown.contract.name import resource_name
from spindown.error import BadInput
from spindown.operate.iam_policy import RIGHTS, Policy, Statement, Whose, allow, document, split

Template = Mapping[str, Any]

#: What is made of types that the registry does not know: a custom resource is a function's call.
_CUSTOM = "Custom::"
#: Takes no resource, and changes nothing.
_LOOKS = re.compile(r"[a-z0-9-]+:(BatchGet|Describe|List)")
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
    "ssm": (
        "parameter/spindown/{name}/*",
        "parameter/imagebuilder/spindown/{name}/*",
    ),
}
#: Of these, what roles use that the templates make, each by its name.
_OF_ROLES = ("dynamodb", "imagebuilder", "lambda", "logs", "sns", "sqs")
#: Actions, and services of which the registry asks more than to look -> why no template needs them.
LEFT_OUT: Mapping[str, str] = {
    "application-autoscaling": "the ledger is billed by request and has no capacity to scale",
    "firehose": "logs go to no delivery stream",
    "kinesis": "the ledger sends its changes to no stream",
    "logs:DeleteResourcePolicy": "no log group has a policy, and one is the whole account's",
    "logs:PutResourcePolicy": "no log group has a policy, and one is the whole account's",
    "lakeformation": "tables of Glue are governed by IAM",
    "s3tables": "no bucket has metadata tables",
    "vpc-lattice": "endpoints lead to AWS's services alone",
    "vpce": "endpoints lead to services of their own region",
}
#: Services whose resources bear ids that nobody knows before.
_BY_ID = ("ec2", "fis")
#: Actions that take no resource (Service Authorization Reference, Amazon CloudWatch Logs).
_WITHOUT_RESOURCE = frozenset({"logs:PutQueryDefinition", "logs:DeleteQueryDefinition"})
#: What deletes something that bears the deployment's tag, or a route of a table that does.
_DELETES_TAGGED = frozenset(
    f"ec2:Delete{what}"
    for what in (
        "FlowLogs",
        "InternetGateway",
        "Route",
        "RouteTable",
        "SecurityGroup",
        "Subnet",
        "Vpc",
        "VpcEndpoints",
    )
)
_TAGS_BY_ID = frozenset({"ec2:CreateTags", "ec2:DeleteTags"})
#: What of EC2 a deploy makes that bears tags.
_TAGGED_KINDS = (
    "internet-gateway",
    "launch-template",
    "route-table",
    "security-group",
    "subnet",
    "vpc",
    "vpc-endpoint",
    "vpc-flow-log",
)


def execution(whose: Whose, templates: Sequence[Template]) -> Mapping[str, Policy]:
    """Return the policies of the execution role, by the names to give them.

    One policy has no room for all. Raises BadInput for a type whose rights are not known.
    """
    asked = {action for kind in types_of(templates) for action in rights_of(kind)}
    actions = {one for one in asked if not _OF_PEOPLE.match(one) and one not in LEFT_OUT}
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
        *_name_endpoints(templates),
        *_change_by_id(whose, [one for name in _BY_ID for one in by_service.get(name, [])]),
        *_keep_bucket(whose, by_service.get("s3", [])),
        *_keep_roles(whose, by_service.get("iam", []), templates),
        *_use_keys(whose, by_service.get("kms", []), made),
        *_read_outputs(whose, templates),
    ]
    return {
        f"{whose.deployment}-execution-{number}": document(part)
        for number, part in enumerate(split(statements), 1)
    }


def boundary(whose: Whose, templates: Sequence[Template]) -> Policy:
    """Return a permissions boundary: the actions of all roles of the templates, and no other.

    Of data, functions, logs and instances that are there, a role changes only what bears the
    deployment's name or tag. What bears neither it changes as its own policy says (``_bounds``).
    What it reads may be anybody's, as inputs are, and so is what it launches: that its own policy
    alone bounds.
    """
    asked = {
        action for one in role_statements(templates) for action in _listed(one.get("Action", []))
    }
    gives = sorted(one for one in asked if one.startswith("iam:"))
    bounded = {
        "iam:CreateServiceLinkedRole": _roles(whose, "/aws-service-role/*"),
        "iam:PassRole": _own_roles(whose),
    }
    named = {
        service: sorted(x for x in asked if re.match(rf"{service}:(?!Describe|List)", x))
        for service in _OF_ROLES
    }
    writes = sorted(one for one in asked if re.match(r"s3:(?!Get|List)", one))
    bounds = [
        {**one, "Action": own}
        for one in _bounds(whose)
        if (own := sorted(asked & {*one["Action"]}))
    ]
    # After a destroy and a deploy the bucket has another name.
    objects = replace(whose, bucket=None).objects("*")
    apart = [*named.values(), *(one["Action"] for one in bounds)]
    rest = asked - {*gives, *writes, *(one for own in apart for one in own)}
    return document(
        [
            allow("Work", sorted(rest), ["*"]),
            *(
                allow(service.capitalize(), own, _by_name(whose, service))
                for service, own in named.items()
                if own
            ),
            *([allow("KeepObjects", writes, objects, whose.ours)] if writes else []),
            *bounds,
            *(allow(one.partition(":")[2], [one], [bounded[one]]) for one in gives),
        ]
    )


def _bounds(whose: Whose) -> list[Statement]:
    """Return what bounds changes of what has no name of the deployment's.

    Whoever could tag an instance could end it, so instances are tagged while they are launched. A
    snapshot bears the tags of Image Builder alone. Lambda connects functions by requests of which
    no function is the source.
    """
    name = whose.deployment
    launching = {
        f"aws:RequestTag/{tag.DEPLOYMENT}": name,
        "ec2:CreateAction": ["CreateFleet", "RunInstances"],
    }
    images = f"arn:aws:imagebuilder:*:{whose.account}:image/{resource_name(name, '*')}"
    return [
        allow(
            "EndTagged",
            [
                "ec2:DeregisterImage",
                "ec2:SendSpotInstanceInterruptions",
                "ec2:TerminateInstances",
            ],
            ["*"],
            {"StringEquals": {f"aws:ResourceTag/{tag.DEPLOYMENT}": name}},
        ),
        allow("TagLaunches", ["ec2:CreateTags"], ["*"], {"StringEquals": launching}),
        allow(
            "DeleteSnapshots",
            ["ec2:DeleteSnapshot"],
            ["*"],
            {"StringLike": {f"aws:ResourceTag/{BUILDER_TAG}": images}},
        ),
        allow(
            "ConnectFunctions",
            [
                "ec2:AssignPrivateIpAddresses",
                "ec2:CreateNetworkInterface",
                "ec2:DeleteNetworkInterface",
                "ec2:UnassignPrivateIpAddresses",
            ],
            ["*"],
            {"Null": {"lambda:SourceFunctionArn": "true"}},
        ),
        allow(
            "LendKeys", ["kms:CreateGrant"], ["*"], {"Bool": {"kms:GrantIsForAWSResource": "true"}}
        ),
        allow(
            "SendEvents",
            ["events:PutEvents"],
            [f"arn:aws:events:*:{whose.account}:event-bus/default"],
        ),
    ]


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
    version = f"arn:aws:ssm:*:{whose.account}:parameter/cdk-bootstrap/{whose.qualifier}/version"
    return [
        allow("Look", looks, ["*"], _regions(whose)),
        # Each template asks which bootstrap it meets.
        allow("SeeBootstrap", ["ssm:GetParameters"], [version], _regions(whose)),
    ]


def _change(whose: Whose, service: str, actions: Sequence[str]) -> Statement:
    own = [one for one in actions if not _LOOKS.match(one) and one not in _WITHOUT_RESOURCE]
    return allow(service.capitalize(), own, _by_name(whose, service), _regions(whose))


def _by_name(whose: Whose, service: str) -> list[str]:
    """Return what of a service bears the deployment's name."""
    resources = [
        f"arn:aws:{service}:*:{whose.account}:{pattern.format(**_words(whose))}"
        for pattern in _NAMED[service]
    ]
    # AWS's own components, which a recipe names.
    return [*resources, *(["arn:aws:imagebuilder:*:aws:*"] if service == "imagebuilder" else [])]


def _change_by_id(whose: Whose, actions: Sequence[str]) -> list[Statement]:
    """Allow what ids cannot bound; deletes only of what bears the deployment's tag.

    Of the other changes it is not sure that CloudFormation has tagged the resource before.
    """
    changes = [one for one in actions if not _LOOKS.match(one)]
    if not changes:
        return []
    deletes = [one for one in changes if one in _DELETES_TAGGED]
    tags = [one for one in changes if one in _TAGS_BY_ID]
    rest = [one for one in changes if one not in _DELETES_TAGGED | _TAGS_BY_ID]
    regions = _regions(whose)
    ours = {f"aws:ResourceTag/{tag.DEPLOYMENT}": whose.deployment}
    kinds = [f"arn:aws:ec2:*:{whose.account}:{kind}/*" for kind in _TAGGED_KINDS]
    return [
        allow("ChangeById", rest, ["*"], regions),
        *([allow("TagById", tags, kinds, regions)] if tags else []),
        *(
            [
                allow(
                    "DeleteTagged",
                    deletes,
                    ["*"],
                    {"StringEquals": {**regions["StringEquals"], **ours}},
                )
            ]
            if deletes
            else []
        ),
    ]


def _name_endpoints(templates: Sequence[Template]) -> list[Statement]:
    """Allow giving endpoints the names of their services, by a zone of AWS's for the VPC.

    EC2 asks for it where it makes such an endpoint, and the registry does not tell (Service
    Authorization Reference, Amazon EC2, "CreateVpcEndpoint"). Route 53 has no regions.
    """
    if not any(
        one.get("Properties", {}).get("PrivateDnsEnabled")
        for each in templates
        for one in each["Resources"].values()
    ):
        return []
    places = ["arn:aws:route53:::hostedzone/*", "arn:aws:ec2:*:*:vpc/*"]
    return [allow("NameEndpoints", ["route53:AssociateVPCWithHostedZone"], places)]


def _keep_bucket(whose: Whose, actions: Sequence[str]) -> list[Statement]:
    if not actions:
        return []
    archives = [
        f"arn:aws:s3:::cdk-{whose.qualifier}-assets-{whose.account}-{region}/*"
        for region in whose.regions
    ]
    # A bucket that is not there yet is nobody's.
    makes = "s3:CreateBucket"
    keeps = [one for one in actions if one != makes]
    return [
        allow("MakeBucket", [makes], whose.objects()),
        allow("KeepBucket", keeps, [*whose.objects(), *whose.objects("*")], whose.ours),
        allow("ReadArchives", ["s3:GetObject", "s3:GetObjectVersion"], archives, whose.ours),
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


#: Type of which the registry asks to make a role of AWS's own -> the services that get one.
_LINKED: Mapping[str, Sequence[str]] = {
    # Its workgroup only says where answers go.
    "AWS::Athena::WorkGroup": (),
    "AWS::DynamoDB::GlobalTable": (
        "contributorinsights.dynamodb.amazonaws.com",
        "dynamodb.application-autoscaling.amazonaws.com",
        "replication.dynamodb.amazonaws.com",
    ),
    "AWS::EC2::FlowLog": ("delivery.logs.amazonaws.com",),
    "AWS::ImageBuilder": ("imagebuilder.amazonaws.com",),
}
_MAKES_LINKED = "iam:CreateServiceLinkedRole"


def _keep_roles(
    whose: Whose, actions: Sequence[str], templates: Sequence[Template]
) -> list[Statement]:
    """Allow roles, policies and profiles of the deployment alone, and no role without boundary.

    It changes neither its own rights nor the boundary, whatever their names match.
    """
    free = "iam:DeleteRolePermissionsBoundary"
    own = [
        f"arn:aws:iam::{whose.account}:{kind}{whose.role_path}{_role_begins(whose)}"
        for kind in ("role", "policy", "instance-profile")
    ]
    rest = [one for one in actions if one not in {_MAKES_LINKED, "iam:PassRole"}]
    kept = [one for one in rest if not re.match(r"iam:(Get|List)", one)]
    found = []
    if whose.boundary_arn is not None:
        bounded = {"StringEquals": {"iam:PermissionsBoundary": whose.boundary_arn}}
        gives = sorted(_GIVES & {*rest})
        rest = [one for one in rest if one not in _GIVES and one != free]
        found = [allow("KeepBoundedRoles", gives, [_own_roles(whose)], bounded)]
    passed = {"StringEquals": {"iam:PassedToService": trusted_services(templates)}}
    linked = {"StringEquals": {"iam:AWSServiceName": linked_services(templates)}}
    return [
        *found,
        allow("KeepRoles", rest, own),
        allow("PassRoles", ["iam:PassRole"], [_own_roles(whose)], passed),
        allow("MakeRolesOfAws", [_MAKES_LINKED], [_roles(whose, "/aws-service-role/*")], linked),
        {**allow("KeepOwnRights", kept, _own_rights(whose)), "Effect": "Deny"},
    ]


def trusted_services(templates: Sequence[Template]) -> list[str]:
    """Return the services that roles of the templates trust, and so may be passed to."""
    return sorted(
        {
            service
            for each in templates
            for one in each["Resources"].values()
            if one["Type"] == "AWS::IAM::Role"
            for statement in one["Properties"]["AssumeRolePolicyDocument"]["Statement"]
            for service in _listed(statement["Principal"]["Service"])
        }
    )


def linked_services(templates: Sequence[Template]) -> list[str]:
    """Return the services for which making the templates' resources may make a role of AWS's own.

    Raises BadInput for a type of which that is not known.
    """
    found: set[str] = set()
    for kind in types_of(templates):
        if _MAKES_LINKED in rights_of(kind):
            known = kind if kind in _LINKED else kind.rpartition("::")[0]
            if known not in _LINKED:
                remedy = "name the service for which it makes a role"
                raise BadInput("resource type", kind, remedy)
            found.update(_LINKED[known])
    return sorted(found)


def _own_rights(whose: Whose) -> list[str]:
    """Return what the role must not change: policies that are printed, the boundary, bootstrap."""
    return [
        *(
            f"arn:aws:iam::{whose.account}:policy/*{whose.deployment}-{role}-*"
            for role in ("execution", *RIGHTS)
        ),
        f"arn:aws:iam::{whose.account}:role/*cdk-{whose.qualifier}-*",
        *([whose.boundary_arn] if whose.boundary_arn is not None else []),
    ]


#: Services that use a key of yours for what a deploy makes.
_KEY_SERVICES = ("athena", "dynamodb", "imagebuilder", "lambda", "logs", "s3", "sns", "sqs")
_GRANTS_KEYS = ("kms:CreateGrant", "kms:RevokeGrant")


def _use_keys(whose: Whose, actions: Sequence[str], made: Collection[str]) -> list[Statement]:
    """Allow the use of keys through services alone; of the bootstrap's own, through S3."""
    found = []
    used = [one for one in actions if not _LOOKS.match(one) and one not in _GRANTS_KEYS]
    lent = [one for one in actions if one in _GRANTS_KEYS]
    if whose.key_arns and actions:
        through = _through(whose, [one for one in _KEY_SERVICES if one in made or one == "s3"])
        aws_alone = {**through, "Bool": {"kms:GrantIsForAWSResource": "true"}}
        found = [
            allow("UseKeys", used, whose.key_arns, through),
            allow("LendKeys", lent, whose.key_arns, aws_alone),
        ]
    archives = [one for one in whose.archive_key_arns if one.split(":")[3] in whose.regions]
    if archives:
        found.append(allow("ReadArchivesByKey", ["kms:Decrypt"], archives, _through(whose, ["s3"])))
    return found


def _through(whose: Whose, services: Sequence[str]) -> Mapping[str, Any]:
    places = [f"{one}.{region}.amazonaws.com" for one in services for region in whose.regions]
    return {"StringEquals": {"kms:ViaService": places}}


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
    return f"{whose.deployment}-"[:KEPT_OF_STACK] + "*"


def _words(whose: Whose) -> Mapping[str, str]:
    return {
        "name": whose.deployment,
        "begins": _begins(whose),
        "snake": whose.deployment.replace("-", "_"),
        "qualifier": whose.qualifier,
    }


def _regions(whose: Whose) -> Mapping[str, Any]:
    return {"StringEquals": {"aws:RequestedRegion": list(whose.regions)}}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
