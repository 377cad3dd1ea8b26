"""Whatever is wrong with spindown.toml is said in one sentence, with the key and the remedy."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown import config
from spindown.config.duration import format_duration
from spindown.domain.policy import Policy
from spindown.domain.worker_lifecycle import STOP_GRACE_AT_MOST
from spindown.error import ConfigError
from tests.unit.config.document import with_value

_KEY_ID = "1234abcd-12ab-34cd-56ef-1234567890ab"
_FOREIGN_SECRET = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:hook-Ab12Cd"
_KEY_FORM = (
    "write a KMS key of the form arn:aws:kms:REGION:ACCOUNT:key/ID, with the id as KMS shows it"
)


def _with_functions(home: list[str] | None, **abroad: Any) -> dict[str, Any]:
    """Return a deployment, its functions at home in these subnets, and an outpost."""
    network = {"vpc_id": "vpc-1", "subnets": {"us-east-1a": "subnet-a"}}
    own = {} if home is None else {"function_subnets": home}
    outpost = {"outpost": {"us-west-2": {"zones": ["us-west-2a"], **abroad}}} if abroad else {}
    return {**_HOME, "network": {**network, **own}, **outpost}


def _abroad(*subnets: str) -> dict[str, Any]:
    network = {"vpc_id": "vpc-2", "subnets": {"us-west-2a": "subnet-b"}}
    return {**network, "function_subnets": [*subnets]} if subnets else network


_HOME = {"name": "lab", "region": "us-east-1", "zones": ["us-east-1a"]}
_EVERYWHERE = "in every region or in none"
_FUNCTIONS_AT_HOME = "deployment.network.function_subnets"
_PLACED_ODDLY = [
    (
        _with_functions(["subnet-1", "subnet-1"]),
        _FUNCTIONS_AT_HOME,
        "name each subnet once",
        "a function's subnet twice",
    ),
    (
        _with_functions([f"subnet-{number:x}" for number in range(17)]),
        _FUNCTIONS_AT_HOME,
        "name at most 16",
        "more subnets than a function may have",
    ),
    (
        _with_functions(["subnet-1"], network=_abroad()),
        "deployment.outpost.us-west-2.network.function_subnets",
        f"name some, {_EVERYWHERE}",
        "functions in a VPC at home alone",
    ),
    (
        _with_functions(["subnet-1"], egress=[]),
        "deployment.outpost.us-west-2.network",
        f"name one with function_subnets, {_EVERYWHERE}",
        "functions in a VPC beside a network that is made",
    ),
    (
        _with_functions([], network=_abroad("subnet-2")),
        _FUNCTIONS_AT_HOME,
        f"name some, {_EVERYWHERE}",
        "functions in a VPC abroad alone",
    ),
]


@pytest.mark.parametrize(
    ("path", "value", "field", "remedy"),
    [
        pytest.param(
            "workload.ocr.policy.idel_timeout",
            "10m",
            "workload.ocr.policy.idel_timeout",
            "did you mean idle_timeout?",
            id="a misspelt key is answered with the right one",
        ),
        pytest.param(
            "deployment.tick",
            "2s",
            "deployment.tick",
            "move it to the table whose key it is: `spindown docs settings`",
            id="a key of another table",
        ),
        *(
            pytest.param(
                f"workload.ocr.requirements.{written}",
                16,
                f"workload.ocr.requirements.{written}",
                f"did you mean {meant}?",
                id=f"{written}, which types and decorators have",
            )
            for written, meant in {
                "gpu_memory_gib": "gpu_memory_gib_min",
                "memory_gib": "memory_gib_min",
                "vcpus": "vcpus_min",
                "gpus": "gpu_count_min",
                "gpu": "gpu_names",
            }.items()
        ),
        pytest.param(
            "workload.ocr.requirements.max_workers",
            3,
            "workload.ocr.requirements.max_workers",
            "move it to the table whose key it is: `spindown docs settings`",
            id="a key of another table, unlike any of its own",
        ),
        pytest.param(
            "workload.ocr.models",
            ["s3://weights/ocr/"],
            "workload.ocr.models",
            "set run.metadata_access = true as well: the code reads them",
            id="models that the code has no way to read",
        ),
        pytest.param(
            "workload.ocr.kms_keys",
            ["alias/mine"],
            "workload.ocr.kms_keys.0",
            _KEY_FORM,
            id="a key by its alias, which no grant can name",
        ),
        pytest.param(
            "workload.ocr.run.secrets",
            {"TOKEN": "hub token"},
            "workload.ocr.run.secrets.TOKEN",
            "write a secret of the form /ssm/parameter, or a name or ARN of Secrets Manager",
            id="a secret that no service can have",
        ),
        pytest.param(
            "workload.ocr.run.env",
            {"A=B": "x"},
            "workload.ocr.run.env.A=B",
            "write a variable of letters, digits and _",
            id="a variable that no process can have",
        ),
        pytest.param(
            "workload.ocr.run.env",
            {"A": "x\0y"},
            "workload.ocr.run.env.A",
            "write a value of any signs but NUL",
            id="a value that no variable can have",
        ),
        pytest.param(
            "workload.ocr.run",
            {"entrypoint": "ocr:run", "code": "code", "allow_source_builds": True},
            "workload.ocr.run.allow_source_builds",
            "leave it out: there are no requirements",
            id="builds of nothing",
        ),
        pytest.param(
            "workload.ocr.run",
            {
                "entrypoint": "ocr:run",
                "code": "code",
                "env": {"TOKEN": "a"},
                "secrets": {"TOKEN": "b"},
            },
            "workload.ocr.run.secrets",
            "take TOKEN out of env or of secrets",
            id="a variable twice",
        ),
        pytest.param(
            "workload.ocr.run.item_timeout",
            "0s",
            "workload.ocr.run.item_timeout",
            "make it longer than zero",
            id="no time for any item",
        ),
        pytest.param(
            "workload.ocr.run.slots",
            65,
            "workload.ocr.run.slots",
            'write "per-gpu", "per-instance" or a whole number from 1 to 64',
            id="more slots than a machine has",
        ),
        pytest.param(
            "workload.ocr.run.batch_size",
            "4",
            "workload.ocr.run.batch_size",
            "write a whole number",
            id="a number in quotes",
        ),
        pytest.param(
            "deployment.budget_per_month",
            True,
            "deployment.budget_per_month",
            "write a number",
            id="a truth for a number",
        ),
        pytest.param(
            "workload.ocr.run.code",
            3,
            "workload.ocr.run.code",
            "write a path in quotes",
            id="a number for a path",
        ),
        pytest.param(
            "deployment.colour",
            "red",
            "deployment.colour",
            "take this unknown key out",
            id="a key like no other",
        ),
        pytest.param(
            "workload.ocr.policy.warm_schedule",
            [{"start": "8am", "end": "18:00", "workers": 2}],
            "workload.ocr.policy.warm_schedule.0.start",
            'write a time of day such as "08:30"',
            id="a time of day in other words",
        ),
        pytest.param(
            "workload.ocr.policy.warm_schedule",
            [{"start": "08:00", "end": "18:00", "workers": 2, "time_zone": "Berlin"}],
            "workload.ocr.policy.warm_schedule.0.time_zone",
            'write a time zone of the IANA list, such as "Europe/Berlin" or "UTC"',
            id="a time zone that there is not",
        ),
        pytest.param(
            "workload.ocr.policy.idle_timeout",
            10,
            "workload.ocr.policy.idle_timeout",
            'write a duration with its unit in quotes, such as "10m"',
            id="no unit",
        ),
        pytest.param(
            "workload.ocr.policy.start_within",
            "5 minutes",
            "workload.ocr.policy.start_within",
            'write a duration such as "90s", "10m" or "1h30m" (ms, s, m, h, d)',
            id="wrong unit",
        ),
        pytest.param(
            "workload.ocr.policy.max_price_per_hour",
            -1,
            "workload.ocr.policy.max_price_per_hour",
            "make it greater than 0",
            id="negative money",
        ),
        pytest.param(
            "workload.ocr.policy.max_price_per_hour",
            float("nan"),
            "workload.ocr.policy.max_price_per_hour",
            "write a finite number",
            id="no number",
        ),
        pytest.param(
            "workload.ocr.requirements.gpu_count_max",
            0.5,
            "workload.ocr.requirements.gpu_count_max",
            "make it at least gpu_count_min (1)",
            id="an impossible range",
        ),
        pytest.param(
            "workload.ocr.requirements",
            {"gpu_names": ["T4"], "gpu_names_denied": ["T4"]},
            "workload.ocr.requirements.gpu_names_denied",
            "take T4 out of one of the two lists",
            id="allowed and denied at once",
        ),
        pytest.param(
            "workload.ocr.requirements.gpu_manufacturer",
            "",
            "workload.ocr.requirements.gpu_manufacturer",
            "write a maker, such as NVIDIA",
            id="no maker",
        ),
        pytest.param(
            "workload.ocr.requirements.gpu_count_max",
            0,
            "workload.ocr.requirements.gpu_count_max",
            "make it at least gpu_count_min (1)",
            id="no GPU at most and one at least",
        ),
        pytest.param(
            "workload.ocr.requirements.gpu_names",
            ["T4", "L40s"],
            "workload.ocr.requirements.gpu_names",
            "write L40S or L4 for L40s; of a newer GPU name its types in instance_types",
            id="a GPU that nobody sells",
        ),
        pytest.param(
            "workload.ocr.requirements",
            {"gpu_count_min": 0, "gpu_memory_gib_min": 16},
            "workload.ocr.requirements.gpu_memory_gib_min",
            "leave it out: gpu_count_min = 0 asks for no GPU, so none can have it",
            id="memory of no GPU",
        ),
        pytest.param(
            "deployment.region",
            "us-est-1",
            "deployment.region",
            "write us-east-1 or us-west-1: no region is called so",
            id="a misspelt region",
        ),
        pytest.param(
            "workload.ocr.requirements.gpu_names",
            ["Trainium"],
            "workload.ocr.image.parameters",
            "name an image with a driver of AWS: AWS's own has NVIDIA's alone",
            id="Trainium, whose driver the image has not",
        ),
        pytest.param(
            "workload.ocr.requirements.gpu_manufacturer",
            "AMD",
            "workload.ocr.image.parameters",
            "name an image with a driver of AMD: AWS's own has NVIDIA's alone",
            id="a maker whose driver the image has not",
        ),
        pytest.param(
            "workload.ocr.requirements.allow_fractional_gpu",
            True,
            "workload.ocr.image.parameters",
            "name an image with NVIDIA's GRID driver: no other drives a part of a GPU",
            id="a part of a GPU, which the usual driver does not see",
        ),
        pytest.param(
            "workload.ocr.requirements.gpu_names",
            ["T4", "V100"],
            "workload.ocr.image.parameters",
            "name an image with NVIDIA's closed driver: the open one has no V100",
            id="a GPU that its image cannot drive",
        ),
        pytest.param(
            "deployment.zones",
            ["eu-west-1a"],
            "deployment.zones",
            "write zones of us-east-1, such as us-east-1a: eu-west-1a is none",
            id="a zone of another region",
        ),
        pytest.param("deployment.zones", [], "deployment.zones", "name at least 1", id="no zone"),
        pytest.param(
            "deployment.tags",
            {"cost center": "12"},
            "deployment.tags.cost center",
            "write a tag's key of letters, digits and + - = . _ : @, 128 at most: "
            "instance metadata shows no others",
            id="a tag that instance metadata does not take",
        ),
        pytest.param(
            "deployment.tags",
            {"team": "a,b"},
            "deployment.tags.team",
            "write a tag's value of letters, digits, spaces and + - = . _ : / @, 256 at most",
            id="a tag that EC2 does not take",
        ),
        pytest.param(
            "deployment.tags",
            {"Spindown:workload": "mine"},
            "deployment.tags.Spindown:workload",
            "take this key out: it is not yours",
            id="a tag of Spindown's own",
        ),
        pytest.param(
            "deployment.tags",
            {"Name": "workers"},
            "deployment.tags.Name",
            "take this key out: Spindown names what it makes",
            id="a tag that Spindown sets",
        ),
        pytest.param(
            "deployment.tags",
            {"Team": "a", "team": "b"},
            "deployment.tags",
            "write team once: to IAM, upper and lower case are the same",
            id="a tag in two cases",
        ),
        pytest.param(
            "deployment.tags",
            {f"team{n}": "a" * 100 for n in range(20)},
            "deployment.tags",
            "make keys and values shorter: all together may have 2000 characters",
            id="tags of too many characters",
        ),
        pytest.param(
            "deployment.tags",
            {f"team{n}": "a" for n in range(26)},
            "deployment.tags",
            "name at most 25",
            id="too many tags",
        ),
        pytest.param(
            "deployment.permissions_boundary",
            "arn:aws:iam::1:role/limits",
            "deployment.permissions_boundary",
            "write a managed policy of its name, or the form arn:aws:iam::ACCOUNT:policy/NAME",
            id="no managed policy",
        ),
        pytest.param(
            "deployment.permissions_boundary",
            "arn:aws:iam::111122223333:policy/demo-limits",
            "deployment.permissions_boundary",
            "name a policy that does not begin with demo-: a deploy may change those",
            id="a boundary that a deploy may change",
        ),
        pytest.param(
            "deployment.role_path",
            "team/",
            "deployment.role_path",
            "write a path of the form /team/, which begins and ends with /, 256 characters at most",
            id="no path of IAM",
        ),
        pytest.param(
            "deployment.role_name_prefix",
            "the team's ",
            "deployment.role_name_prefix",
            "write the beginning of a name of letters, digits and + = , . @ _ -, 24 at most",
            id="no name of a role",
        ),
        pytest.param(
            "deployment.bootstrap_qualifier",
            "far-too-long",
            "deployment.bootstrap_qualifier",
            "write a qualifier of a-z, 0-9 and -, 10 at most",
            id="no qualifier",
        ),
        pytest.param(
            "deployment.kms_key_arn",
            f"arn:aws:kms:eu-west-1:111122223333:key/{_KEY_ID}",
            "deployment.kms_key_arn",
            "name a key of us-east-1: one of another cannot be used",
            id="a key of another region",
        ),
        pytest.param(
            "deployment.kms_key_arn",
            "alias/ours",
            "deployment.kms_key_arn",
            _KEY_FORM,
            id="no ARN of a key",
        ),
        *(
            pytest.param(
                path,
                value,
                path,
                f"name one of the aws partition: {part} is of another, which no deployment reaches",
                id=f"{path.rpartition('.')[2]} of another partition, as {part}",
            )
            for path, value, part in (
                *(
                    ("deployment.kms_key_arn", f"{key}:111122223333:key/{_KEY_ID}", part)
                    for key, part in (
                        ("arn:aws-us-gov:kms:us-east-1", "arn:aws-us-gov"),
                        ("arn:aws-cn:kms:cn-north-1", "arn:aws-cn"),
                        ("arn:aws:kms:us-gov-west-1", "arn:aws:kms:us-gov-west-1"),
                    )
                ),
                (
                    "deployment.permissions_boundary",
                    "arn:aws-us-gov:iam::111122223333:policy/limits",
                    "arn:aws-us-gov",
                ),
                (
                    "deployment.alarm_webhook",
                    "arn:aws-cn:secretsmanager:cn-north-1:111122223333:secret:hook-Ab12Cd",
                    "arn:aws-cn",
                ),
                (
                    "workload.ocr.run.image",
                    "111122223333.dkr.ecr.cn-north-1.amazonaws.com.cn/ocr:1",
                    "111122223333.dkr.ecr.cn-north-1",
                ),
            )
        ),
        *(
            pytest.param(
                path,
                value,
                field,
                "name a secret of us-east-1, or replicate this one to there",
                id=f"{field}: a secret of another region",
            )
            for path, value, field in (
                ("deployment.alarm_webhook", _FOREIGN_SECRET, "deployment.alarm_webhook"),
                (
                    "workload.ocr.run.secrets",
                    {"TOKEN": _FOREIGN_SECRET},
                    "workload.ocr.run.secrets.TOKEN",
                ),
            )
        ),
        pytest.param(
            "deployment.outpost.us-west-2",
            {
                "zones": ["us-west-2a"],
                "kms_key_arn": f"arn:aws:kms:us-west-2:111122223333:key/{_KEY_ID}",
            },
            "deployment.outpost.us-west-2.kms_key_arn",
            "name a key in every region, or in none",
            id="a key in one region alone",
        ),
        *(
            pytest.param("deployment", document, field, advice, id=id_)
            for document, field, advice, id_ in _PLACED_ODDLY
        ),
        pytest.param(
            "deployment.egress",
            ["10.0.0.0/8:5432", "10.0.0.0/33:443"],
            "deployment.egress.1",
            "write a destination of the form 10.0.0.0/8:443 or pl-0123abcd:443: a range or a "
            "prefix list, and a port of TCP",
            id="no range of addresses",
        ),
        pytest.param(
            "deployment.egress",
            ["10.0.0.1/8:443"],
            "deployment.egress.0",
            "write 10.0.0.0/8:443: that is the range which it lies in",
            id="an address within a range",
        ),
        pytest.param(
            "deployment.outpost.us-west-2",
            {"zones": ["us-west-2a"], "public_addresses": False},
            "deployment.outpost.us-west-2.public_addresses",
            "move it up to [deployment], which it is a key of",
            id="a key of the deployment in a region",
        ),
        pytest.param(
            "deployment.egress",
            ["10.0.0.0/8:5432"],
            "deployment.egress",
            "add a destination at port 443: workers call AWS there",
            id="no way to AWS",
        ),
        pytest.param(
            "deployment.outpost.us-west-2",
            {"zones": ["us-west-2a"], "egress": ["10.0.0.0/8:5432"]},
            "deployment.outpost.us-west-2.egress",
            "add a destination at port 443: workers call AWS there",
            id="no way to AWS from another region",
        ),
        pytest.param(
            "deployment",
            {
                "name": "lab",
                "region": "eu-west-1",
                "zones": ["eu-west-1a"],
                "egress": ["pl-6da54004:443"],
                "outpost": {"us-west-2": {"zones": ["us-west-2a"]}},
            },
            "deployment.outpost.us-west-2.egress",
            "name destinations of us-west-2: home's pl-6da54004:443 holds for home alone",
            id="a prefix list of home in another region",
        ),
        pytest.param(
            "deployment",
            {
                "name": "lab",
                "region": "eu-west-1",
                "zones": ["eu-west-1a"],
                "egress": ["0.0.0.0/0:80", "10.0.0.0/16:443"],
                "outpost": {"us-west-2": {"zones": ["us-west-2a"]}},
            },
            "deployment.outpost.us-west-2.egress",
            "name destinations of us-west-2: home's 10.0.0.0/16:443 holds for home alone",
            id="a private range of home in another region",
        ),
        pytest.param(
            "deployment.log_retention",
            "31d",
            "deployment.log_retention",
            "write one of those that CloudWatch Logs knows: "
            "1d, 3d, 5d, 7d, 14d, 30d, 60d, 90d, 120d, 150d, 180d, 365d, 400d, 545d, 731d, 1096d, "
            "1827d, 2192d, 2557d, 2922d, 3288d",
            id="no retention of CloudWatch Logs",
        ),
        pytest.param(
            "deployment.alarm_email",
            "the ops team",
            "deployment.alarm_email",
            "write an email address of the form you@example.com",
            id="no email address",
        ),
        pytest.param(
            "workload.ocr.run.entrypoint",
            "ocr.run",
            "workload.ocr.run.entrypoint",
            "write an entrypoint of the form module:callable",
            id="no callable",
        ),
        pytest.param(
            "workload.ocr.run",
            {"code": "code"},
            "workload.ocr.run.entrypoint",
            "give one of entrypoint, command, image, folders and verify",
            id="nothing to run",
        ),
        pytest.param(
            "workload.ocr.run",
            {"code": "code", "entrypoint": "a:b", "command": ["true"]},
            "workload.ocr.run.entrypoint",
            "leave it out beside command or image",
            id="two things to run",
        ),
        pytest.param(
            "workload.ocr.run",
            {"command": ["true"]},
            "workload.ocr.run.code",
            "name the directory of the code",
            id="a command of nowhere",
        ),
        pytest.param(
            "workload.ocr.run",
            {"image": "a/b:1", "code": "code", "requirements": "r.txt"},
            "workload.ocr.run.requirements",
            "leave it out: an image brings its own packages",
            id="requirements of an image",
        ),
        pytest.param(
            "workload.ocr.run.results",
            "per-job",
            "workload.ocr.run.results",
            "leave it out: an entrypoint gives a result for each item",
            id="one result of an entrypoint",
        ),
        pytest.param(
            "workload.ocr.run",
            {"image": "--privileged"},
            "workload.ocr.run.image",
            "write an image of the form registry/name:tag or registry/name@sha256:...",
            id="an option for an image",
        ),
        pytest.param(
            "workload.ocr.policy.ladder",
            [{"after": "5m", "capacity_types": ["spot"]}],
            "workload.ocr.policy.ladder",
            'begin with a rung after = "0s"',
            id="no first rung",
        ),
        pytest.param(
            "workload.ocr.policy.lease_duration",
            "30s",
            "workload.ocr.policy.lease_duration",
            "make it at least twice heartbeat_interval (1m)",
            id="a lease shorter than its heartbeat",
        ),
        pytest.param(
            "workload.ocr.policy.lease_duration",
            "13h",
            "workload.ocr.policy.lease_duration",
            "make it at most 11h",
            id="a lease longer than SQS hides a message",
        ),
        pytest.param(
            "workload.ocr.policy",
            {"heartbeat_interval": "6m", "lease_duration": "1h", "heartbeat_stale_after": "1h"},
            "workload.ocr.policy.heartbeat_interval",
            "make it at most 5m",
            id="a heartbeat after which the machine powers off",
        ),
        pytest.param("workload", {}, "workload", "name at least 1", id="no workload"),
        pytest.param(
            "deployment.name",
            "gpu--a",
            "deployment.name",
            "write a name of a-z, 0-9 and single -, 31 characters at most",
            id="a name that holds what stands between names",
        ),
        pytest.param(
            "deployment.name",
            "gpu-",
            "deployment.name",
            "write a name of a-z, 0-9 and single -, 31 characters at most",
            id="a name that runs into what stands between names",
        ),
        pytest.param(
            "deployment.outpost.us-west-2",
            {"zones": ["us-east-1b"]},
            "deployment.outpost.us-west-2.zones",
            "write zones of us-west-2, such as us-west-2a: us-east-1b is none",
            id="a zone of another region than its outpost's",
        ),
        pytest.param(
            "deployment.outpost.us-west-2",
            {"zones": []},
            "deployment.outpost.us-west-2.zones",
            "name at least 1",
            id="an outpost without a zone",
        ),
        pytest.param(
            "deployment.outpost.us-east-1",
            {"zones": ["us-east-1b"]},
            "deployment.outpost.us-east-1",
            "take it out: workers run at home anyway",
            id="an outpost at home",
        ),
        pytest.param(
            "deployment.outpost.oregon",
            {"zones": ["us-west-2a"]},
            "deployment.outpost.oregon",
            "write a region of the form us-east-1",
            id="an outpost that is no region",
        ),
        pytest.param(
            "deployment.region",
            "us-gov-west-1",
            "deployment.region",
            "name a region of the aws partition: the Price List tells no dollars of this one",
            id="a region whose prices nobody tells",
        ),
        pytest.param(
            "deployment.outpost.cn-north-1",
            {"zones": ["cn-north-1a"]},
            "deployment.outpost.cn-north-1",
            "name a region of the aws partition: the Price List tells no dollars of this one",
            id="an outpost whose prices are in another currency",
        ),
        pytest.param(
            "deployment.outpost",
            {f"eu-west-{n}": {"zones": [f"eu-west-{n}a"]} for n in range(10)},
            "deployment.outpost",
            "name at most 9",
            id="more outposts than policies fit a role",
        ),
        pytest.param(
            "workload.ocr.policy.regions",
            ["us-west-2"],
            "workload.ocr.policy.regions",
            "take us-west-2 out, or add [deployment.outpost.us-west-2]",
            id="a region without an outpost",
        ),
        pytest.param("deployment", 3, "deployment", "write a table", id="not a table"),
        pytest.param(
            "deployment.network",
            {"vpc_id": "vpc-12", "subnets": {"us-east-1b": "subnet-1"}},
            "deployment.network",
            "give each of the zones one subnet of its own: us-east-1a has none",
            id="a zone left out",
        ),
        pytest.param(
            "deployment.network",
            {"vpc_id": "vpc-12", "subnets": {"us-east-1a": "*"}},
            "deployment.network.subnets.us-east-1a",
            "write a subnet id of the form subnet-0123abcd",
            id="a pattern of subnets",
        ),
        pytest.param(
            "workload.ocr.run.folders",
            True,
            "workload.ocr.run.folders",
            "leave it out beside entrypoint, command or image",
            id="folders beside code",
        ),
        pytest.param(
            "workload.ocr.run",
            {"verify": True, "entrypoint": "ocr:run"},
            "workload.ocr.run.entrypoint",
            "leave it out: the code of `spindown verify` is Spindown's own",
            id="verify beside an entrypoint",
        ),
        pytest.param(
            "workload.ocr.run",
            {"verify": True, "code": "code"},
            "workload.ocr.run.code",
            "leave it out: the code of `spindown verify` is Spindown's own",
            id="verify beside code",
        ),
        pytest.param(
            "workload.ocr.requirements.instance_types",
            ["g*.xlarge"],
            "workload.ocr.requirements.instance_types.0",
            "write an instance type of the form g4dn.xlarge",
            id="a pattern of types",
        ),
        pytest.param(
            "workload.ocr.requirements.families_denied",
            ["g?"],
            "workload.ocr.requirements.families_denied.0",
            "write a family of the form g4dn",
            id="a pattern of families",
        ),
    ],
)
def test_names_the_key_and_the_remedy(path: str, value: object, field: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(with_value(path, value))

    assert (caught.value.field, caught.value.remedy) == (field, remedy)


@pytest.mark.parametrize(
    ("grace", "is_taken"),
    [
        (STOP_GRACE_AT_MOST, True),
        (STOP_GRACE_AT_MOST + timedelta(milliseconds=1), False),
        (timedelta(days=1), False),
    ],
)
def test_a_program_has_no_longer_to_end_than_a_reclaim(grace: timedelta, is_taken: bool) -> None:
    text = format_duration(grace)
    run = {"command": ["run"], "code": "code", "stop_grace": text}
    document = with_value("workload.ocr.run", run)
    if is_taken:
        assert config.parse(document).workloads["ocr"].run.stop_grace == grace
        return

    with pytest.raises(ConfigError) as caught:
        config.parse(document)

    assert (caught.value.field, caught.value.value) == ("workload.ocr.run.stop_grace", text)
    # The mend names what can be written instead.
    assert format_duration(STOP_GRACE_AT_MOST) in caught.value.remedy
    assert re.fullmatch(r"[^\n]+", str(caught.value))


@pytest.mark.parametrize(("length", "is_taken"), [(25, True), (26, False)])
def test_all_names_together_leave_room_for_a_schedule_s_name(length: int, is_taken: bool) -> None:
    workload = "a-name-of-thirty-one-characters"
    document = with_value("deployment.name", "d" * length)
    document["workload"] = {workload: document["workload"]["ocr"]}

    said = complaint_about(document)

    remedy = "shorten it or deployment.name: 56 characters are the most for both"
    assert said is None if is_taken else f"workload.{workload}" in str(said) and remedy in str(said)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["deployment", "workload", "name", "region", "zones", "run", "policy", "ladder"]
                )
                | st.text(max_size=4),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_document_is_a_config_or_one_sentence(document: object) -> None:
    if not isinstance(document, dict):
        document = {"deployment": document}
    sentence = complaint_about(document)

    assert sentence is None or re.fullmatch(r"[^\n]+: [^\n]+", sentence)


def complaint_about(document: dict[str, Any]) -> str | None:
    try:
        config.parse(document)
    except ConfigError as exc:
        return str(exc)
    return None


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        pytest.param(b"\xff\xfe", "save it as UTF-8", id="not UTF-8"),
        pytest.param(b"[deployment", "fix its TOML", id="not TOML"),
        pytest.param(b"a = us-east-1", "in quotes", id="a text without quotes"),
        pytest.param(b"a = 10m", "in quotes", id="a duration without quotes"),
        pytest.param(None, "give a readable file", id="not there"),
    ],
)
def test_says_what_is_wrong_with_the_file(
    tmp_path: Path, content: bytes | None, remedy: str
) -> None:
    path = tmp_path / "spindown.toml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=remedy):
        config.load(path)


@pytest.mark.parametrize(
    ("key", "table"),
    [
        ("item_timeout", "[workload.NAME.run]"),
        ("batch_size", "[workload.NAME.run]"),
        ("budget_per_month", "[deployment]"),
        ("gpu_names", "[workload.NAME.requirements]"),
    ],
)
def test_a_live_edit_names_the_table_of_a_key_that_is_deployed(key: str, table: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.merge_policy(Policy(), {key: 4})

    assert caught.value.remedy == f"change it below {table} of spindown.toml and deploy"


def test_a_ladder_that_begins_late_is_shown_by_its_times() -> None:
    late = {"ladder": [{"after": "5m", "capacity_types": ["spot"]}]}

    with pytest.raises(ConfigError) as caught:
        config.merge_policy(Policy(), late)

    assert caught.value.value == ["5m"]


def test_no_part_of_a_value_breaks_the_line() -> None:
    wrong = with_value("deployment.zones", ["us-east-1a", "\ue000\x1bus-east-1b"])

    with pytest.raises(ConfigError) as caught:
        config.parse(wrong)

    assert str(caught.value).isprintable()
