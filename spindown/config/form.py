"""The forms that values of spindown.toml have, shared by its tables."""

import re
from datetime import timedelta
from difflib import get_close_matches
from ipaddress import IPv4Network
from typing import Annotated, Literal, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from spindown.config.duration import parse_clock, parse_duration


def remedy(field: str, advice: str) -> PydanticCustomError:
    """Return a complaint about a field of the table under validation."""
    return PydanticCustomError("remedy", "{remedy}", {"remedy": advice, "field": field})


def _check_region(value: object) -> object:
    if isinstance(value, str) and value.startswith(_OTHER_PARTITIONS):
        raise ValueError(
            "name a region of the aws partition: the Price List tells no dollars of this one"
        )
    if isinstance(value, str) and (found := _MISSPELT_REGION.fullmatch(value)):
        area, direction, number = found.groups()
        near = sorted(get_close_matches(direction, _DIRECTIONS, n=2))
        if near and direction not in _DIRECTIONS:
            meant = " or ".join(f"{area}-{each}-{number}" for each in near)
            raise ValueError(f"write {meant}: no region is called so")
    return value


def check_partition(value: object) -> object:
    """Refuse an ARN, or an image of Amazon ECR, of China or GovCloud."""
    if isinstance(value, str) and (found := _OF_OTHERS.match(value)):
        raise ValueError(
            f"name one of the aws partition: {found[0]} is of another, which no deployment reaches"
        )
    return value


#: What a region is called; a zone's name begins so.
#: An area, a part of it by its direction, and a number: us-east-1, ap-southeast-2.
_DIRECTIONS = tuple(
    "central east north northeast northwest south southeast southwest west".split()  # noqa: SIM905 - on a line
)
REGION_NAME = rf"[a-z]{{2}}(-[a-z]+)?-({'|'.join(_DIRECTIONS)})-\d"
_MISSPELT_REGION = re.compile(r"([a-z]{2})-([a-z]+)-(\d)")


#: China, GovCloud, and what is isolated. Their accounts have no credentials for the endpoints of
#: the Price List (AWS General Reference, "AWS Price List endpoints"): all would deploy, and nothing
#: would ever be launched.
_OTHER_PARTITIONS = ("cn-", "us-gov-", "us-iso", "eu-iso")
_OF_OTHERS = re.compile(
    rf"arn:aws-[a-z-]+|(arn:aws:\w+:|\d{{12}}\.dkr\.ecr\.)({'|'.join(_OTHER_PARTITIONS)})[a-z0-9-]+"
)


def _parse_duration_or_auto(value: object) -> timedelta | None:
    return None if value in {"auto", None} else parse_duration(value)


def _parse_none(value: object) -> object:
    if isinstance(value, str) and value != "none":
        raise ValueError('write a whole number, or "none"')
    return None if value == "none" else value


def name_pattern(what: str, pattern: str, words: str) -> BeforeValidator:
    """Return the check that a value is a text of this form; ``words`` say it."""

    def check(value: object) -> object:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(f"write {what} of {words}")
        return value

    return BeforeValidator(check)


def _check_time_zone(value: object) -> object:
    try:
        ZoneInfo(value) if isinstance(value, str) and value else _refuse_time_zone()
    except (ZoneInfoNotFoundError, ValueError, OSError):
        _refuse_time_zone()
    return value


def _refuse_time_zone() -> NoReturn:
    raise ValueError('write a time zone of the IANA list, such as "Europe/Berlin" or "UTC"')


#: Beyond any machine or bill. Products of some such numbers are still numbers, so that no setting
#: keeps a tick from its work.
_MOST = 10**9


def _be_conceivable(value: float) -> float:
    """Refuse what is too large; no bound of the form, which ``tools/reference.py`` would spell."""
    if value > _MOST:
        raise ValueError(f"make it at most {_MOST}")
    return value


_Conceivable = AfterValidator(_be_conceivable)
Clock = Annotated[
    timedelta,
    BeforeValidator(parse_clock),
    WithJsonSchema({"type": "string", "format": "time"}),
]
TimeZone = Annotated[str, BeforeValidator(_check_time_zone)]
Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
DurationOrAuto = Annotated[timedelta | None, BeforeValidator(_parse_duration_or_auto)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), _Conceivable]
NotNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False), _Conceivable]
#: Of items an hour: at less, one would take longer than any attempt may.
Rate = Annotated[float, Field(strict=True, ge=0.01, allow_inf_nan=False), _Conceivable]
#: How many times as much as something else.
MoreThanOnce = Annotated[float, Field(strict=True, gt=1, allow_inf_nan=False), _Conceivable]
Flag = Annotated[bool, Field(strict=True)]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Count = Annotated[int, Field(strict=True, ge=0), _Conceivable]
AtLeastOne = Annotated[int, Field(strict=True, ge=1), _Conceivable]
AtLeastOneOrNone = Annotated[AtLeastOne | None, BeforeValidator(_parse_none)]
Name = Annotated[
    str,
    # ``contract.name.SEPARATOR`` stands between names.
    name_pattern(
        "a name",
        r"(?=.{1,31}$)[a-z](-?[a-z0-9])*",
        "a-z, 0-9 and single -, 31 characters at most",
    ),
]
_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_PORT = r"([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
RouteTableId = Annotated[
    str, name_pattern("a route table id", r"rtb-[0-9a-f]+", "the form rtb-0123abcd")
]


def _be_a_range(value: str) -> str:
    """Refuse an address within a range, which EC2 would write as the whole range."""
    where, colon, port = value.partition(":")
    if not where.startswith("pl-"):
        whole = str(IPv4Network(where, strict=False))
        if whole != where:
            raise ValueError(f"write {whole}{colon}{port}: that is the range which it lies in")
    return value


_RANGE = rf"({_BYTE}\.){{3}}{_BYTE}/(3[0-2]|[12]?\d)"
AddressRange = Annotated[
    str, name_pattern("a range", _RANGE, "the form 10.0.0.0/8"), AfterValidator(_be_a_range)
]


Destination = Annotated[
    str,
    name_pattern(
        "a destination",
        rf"({_RANGE}|pl-[0-9a-f]{{8,17}}):{_PORT}",
        "the form 10.0.0.0/8:443 or pl-0123abcd:443: a range or a prefix list, and a port of TCP",
    ),
    AfterValidator(_be_a_range),
]
BucketName = Annotated[
    str,
    name_pattern("a bucket", r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "3 to 63 of a-z, 0-9, . and -"),
]
S3Uri = Annotated[str, name_pattern("an S3 prefix", r"s3://[a-z0-9.-]{3,63}/.*", "s3://bucket/…/")]
#: A key's id; one of a multi-Region key begins with mrk- (AWS KMS API Reference, "KeyListEntry").
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
KeyArn = Annotated[
    str,
    name_pattern(
        "a KMS key",
        rf"arn:aws:kms:{REGION_NAME}:\d{{12}}:key/({_UUID}|mrk-[0-9a-f]{{32}})",
        "the form arn:aws:kms:REGION:ACCOUNT:key/ID, with the id as KMS shows it",
    ),
    BeforeValidator(check_partition),
]
#: Of instances too, whose metadata shows the keys of their tags: it allows no space and no slash
#: (Amazon EC2 User Guide, "View tags for your EC2 instances using instance metadata"). The other
#: signs are those that every service takes (AWS Tagging guide, "Tag naming limits").
TagKey = Annotated[
    str,
    name_pattern(
        "a tag's key",
        r"(?!(\.{1,2}|_index)$)[A-Za-z0-9+\-=._:@]{1,128}",
        "letters, digits and + - = . _ : @, 128 at most: instance metadata shows no others",
    ),
]
TagValue = Annotated[
    str,
    name_pattern(
        "a tag's value",
        r"[\w .:/=+@\-]{1,256}",
        "letters, digits, spaces and + - = . _ : / @, 256 at most",
    ),
]
PolicyName = Annotated[
    str,
    name_pattern(
        "a managed policy",
        r"(arn:aws:iam::(\d{12}|aws):policy/)?([\w+=,.@-]+/)*[\w+=,.@-]{1,128}",
        "its name, or the form arn:aws:iam::ACCOUNT:policy/NAME",
    ),
    BeforeValidator(check_partition),
]
AccountId = Annotated[str, name_pattern("an account", r"\d{12}", "its twelve digits")]
RolePath = Annotated[
    str,
    name_pattern(
        "a path",
        r"(?=.{1,256}$)/([\w+=,.@-]+/)*",
        "the form /team/, which begins and ends with /, 256 characters at most",
    ),
]
RoleNamePrefix = Annotated[
    str,
    name_pattern(
        "the beginning of a name",
        r"[\w+=,.@-]{1,24}",
        "letters, digits and + = , . @ _ -, 24 at most",
    ),
]
Qualifier = Annotated[
    str,
    # A bucket is named after it.
    name_pattern("a qualifier", r"[a-z0-9-]{1,10}", "a-z, 0-9 and -, 10 at most"),
]
#: What a grant names, so that no sign of a pattern may be in it.
InstanceTypeName = Annotated[
    str, name_pattern("an instance type", r"[a-z0-9-]+\.[a-z0-9-]+", "the form g4dn.xlarge")
]
FamilyName = Annotated[str, name_pattern("a family", r"[a-z0-9-]+", "the form g4dn")]
SubnetId = Annotated[
    str, name_pattern("a subnet id", r"subnet-[0-9a-f]+", "the form subnet-0123abcd")
]
SecretReference = Annotated[
    str,
    name_pattern(
        "a secret",
        rf"(/[\w.-]+)+|[\w.+=@-][\w/.+=@-]*|arn:aws:secretsmanager:{REGION_NAME}:\d{{12}}:secret:[\w/+=.@-]+",
        "the form /ssm/parameter, or a name or ARN of Secrets Manager",
    ),
    BeforeValidator(check_partition),
]
EmailAddress = Annotated[
    str,
    name_pattern(
        "an email address",
        r"[^@\s<>\"',;]+@[^@\s<>\"',;]+\.[^@\s<>\"',;]+",
        "the form you@example.com",
    ),
]
Region = Annotated[
    str,
    name_pattern("a region", REGION_NAME, "the form us-east-1"),
    # The last is asked first.
    BeforeValidator(_check_region),
]
Architecture = Literal["x86_64", "arm64"]
ParameterName = Annotated[
    str, name_pattern("an SSM parameter", r"(/[\w.-]+)+", "the form /path/of/parameter")
]
DeviceName = Annotated[
    str, name_pattern("a device", r"/dev/(sd[a-z]\d?|xvd[a-z]+)", "the form /dev/sda1")
]


class TomlTable(BaseModel):
    """A table of spindown.toml: frozen, and a misspelt key is an error.

    A form is built when something is first held against it, so that a function that reads a live
    edit builds the policy's alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, defer_build=True)
