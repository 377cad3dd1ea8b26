"""What ``spindown init --from-account`` asks AWS, and how it is told."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from spindown.cli.session import point_at_local_system, reach
from spindown.config import parse_requirements
from spindown.domain.offer import InstanceRequirements
from spindown.error import BadInput
from spindown.operate.doctor.check import request_quota
from spindown.operate.doctor.finding import join
from spindown.operate.doctor.survey import Survey, survey

#: Where nothing names a region.
DEFAULT_REGION = "us-east-1"
#: vCPUs to ask for in a first quota request; more if the smallest type needs more.
_ASK_FOR = 32


def ask_account(document: Mapping[str, Any], region: str | None, *, local: bool) -> Survey:
    """Return what a region offers for the workloads of a file; None: the account's usual region.

    Raises:
        BadInput: no zone has a type that fits, or AWS cannot be asked.
    """
    requirements = _requirements(document)
    if local:
        point_at_local_system()
    aws = reach(region)
    found = survey(aws.region or DEFAULT_REGION, requirements, aws.market())
    if not found.zones:
        remedy = "widen the requirements, or choose another --region: no zone has a type that fits"
        raise BadInput("region", found.region, remedy)
    return found


def _requirements(document: Mapping[str, Any]) -> Sequence[InstanceRequirements]:
    """Return the requirements of the file's workloads; the rest of the file may be invalid."""
    workloads = _table(document, "workload").values()
    tables = [_table(each, "requirements") for each in workloads if isinstance(each, dict)]
    return [parse_requirements(table) for table in tables or [{}]]


def region_of(text: str) -> str | None:
    """Return the region that a file names, if it names one."""
    region = _table(tomllib.loads(text), "deployment").get("region")
    return region if isinstance(region, str) else None


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def describe(found: Survey) -> Sequence[str]:
    """Return what was found in lines; a quota that is too small comes with its request."""
    lines = [
        f"{zone}: {len(types)} types fit, such as {join(types[:3])}"
        for zone, types in found.zones.items()
    ]
    if found.empty:
        lines.append(f"Left out, since they offer no type that fits: {join(found.empty)}")
    for quota in found.quotas:
        lines.append(f"Quota {quota.name} ({quota.code}): {quota.vcpus:g} vCPUs")
        if quota.vcpus < quota.least:
            asked = max(_ASK_FOR, quota.least)
            lines.append(
                f"  too few for any type; ask for more: {_ask(quota.code, asked, found.region)}"
            )
    return lines


def _ask(code: str, vcpus: int, region: str) -> str:
    return request_quota("ec2", code, vcpus, region)
