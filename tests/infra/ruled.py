"""A deployment with every setting by which accounts have rules, and all stacks that there are."""

from pathlib import Path

from tests.infra.assembly import AWAY, write_project

TAGS = {"team": "vision", "cost:center": "12/34 Köln"}
BOUNDARY = "arn:aws:iam::111122223333:policy/team/limits"
PATH = "/team/vision/"
PREFIX = "acme-"
QUALIFIER = "acme1"
DAYS = 365
HOME_KEY = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
AWAY_KEY = f"arn:aws:kms:{AWAY}:111122223333:key/mrk-1234abcd12ab34cd56ef1234567890ab"

RULED = f"""
[deployment]
name = "lab"
region = "eu-west-1"
zones = ["eu-west-1a"]
outpost.{AWAY} = {{ zones = ["{AWAY}b"], kms_key_arn = "{AWAY_KEY}" }}
kms_key_arn = "{HOME_KEY}"
tags = {{ team = "vision", "cost:center" = "12/34 Köln" }}
permissions_boundary = "{BOUNDARY}"
role_path = "{PATH}"
role_name_prefix = "{PREFIX}"
bootstrap_qualifier = "{QUALIFIER}"
log_retention = "{DAYS}d"
fault_injection = true
session_manager = true

[workload.plain.run]
entrypoint = "job:run"
code = "code"

[[workload.plain.policy.types]]
name = "large"
memory_gib = 64

[workload.baked.run]
entrypoint = "job:run"
code = "code"

[workload.baked.requirements]
architectures = ["x86_64", "arm64"]

[workload.baked.image]
mode = "bake"

[workload.box.run]
image = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/box:1"
metadata_access = true

[workload.proof.run]
verify = true
"""


def write_ruled_project(directory: Path) -> Path:
    """Write that deployment; return the path of its spindown.toml."""
    return write_project(directory, RULED)
