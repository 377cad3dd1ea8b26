"""Settings and live policy edits in SSM's Parameter Store.

To return to the deployed policy, an empty edit is stored. Deleting the parameter would lose its
history and restart its versions.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from spindown.aws.error import translated
from spindown.contract.codec import decode, from_json
from spindown.contract.settings import (
    DeploymentSettings,
    RegionSettings,
    WorkloadSettings,
    deployment_parameter,
    live_parameter,
    outpost_parameter,
    workload_parameter,
)
from spindown.error import ContractError, NotFound, PreconditionFailed, SpindownError
from spindown.port import NO_EDIT, LiveEdit

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_ssm.type_defs import ParameterTypeDef, TagTypeDef

T = TypeVar("T")

#: Free up to 4 KiB, which an edit of many types may pass; once above, it stays billed (Systems
#: Manager User Guide, "Managing parameter tiers"). If no tier is named, the account's default
#: applies, which may take no more.
_TIER: Final = "Intelligent-Tiering"

_THERE: Mapping[str, type[PreconditionFailed]] = {"ParameterAlreadyExists": PreconditionFailed}


class SsmSettingsStore:
    """SettingsStore of one deployment; ``abroad`` returns the client for another region."""

    def __init__(
        self, client: "SSMClient", deployment: str, abroad: "Callable[[str], SSMClient]"
    ) -> None:
        self._client = client
        self._deployment = deployment
        self._abroad = abroad

    def deployment(self) -> DeploymentSettings:
        """Return the deployment."""
        name = deployment_parameter(self._deployment)
        found = self._read(name)
        if name not in found:
            raise NotFound(f"no deployment {self._deployment}: no parameter {name}")
        return _parse(DeploymentSettings, found[name])

    def workload(self, name: str) -> tuple[WorkloadSettings, LiveEdit | None]:
        """Return a workload as deployed, and its live edit: one read, and one for each outpost."""
        deployed = workload_parameter(self._deployment, name)
        live = live_parameter(self._deployment, name)
        found = self._read(deployed, live)
        if deployed not in found:
            raise NotFound(f"no workload {name} in deployment {self._deployment}")
        edit = found.get(live)
        settings = _parse(WorkloadSettings, found[deployed])
        return self._with_outposts(settings), _edit(edit) if edit else None

    def _with_outposts(self, settings: WorkloadSettings) -> WorkloadSettings:
        """Add what outposts say of themselves; one that cannot be read stops no other."""
        regions, unread = dict(settings.regions), {}
        for region in settings.outposts:
            try:
                regions[region] = self._outpost(region, settings.name)
            except SpindownError as exc:
                unread[region] = str(exc)
        return replace(settings, regions=regions, unread=unread)

    def _outpost(self, region: str, workload: str) -> RegionSettings:
        name = outpost_parameter(self._deployment, workload)
        with translated():
            answer = self._abroad(region).get_parameters(Names=[name])
        for parameter in answer["Parameters"]:
            return _parse(RegionSettings, parameter)
        raise NotFound(f"nothing is deployed there: no parameter {name}")

    def put_live(self, name: str, text: str) -> int:
        """Store a live edit; return its version.

        The first one bears the account's tags: Parameter Store takes none where it writes over what
        is there (AWS Systems Manager API Reference, "PutParameter", "Overwrite").
        """
        key, tags = live_parameter(self._deployment, name), self.deployment().tags
        if tags:
            listed: list[TagTypeDef] = [{"Key": key, "Value": text} for key, text in tags.items()]
            with suppress(PreconditionFailed), translated(_THERE):
                answer = self._client.put_parameter(
                    Name=key, Value=text, Type="String", Tier=_TIER, Tags=listed
                )
                return answer["Version"]
        with translated():
            answer = self._client.put_parameter(
                Name=key, Value=text, Type="String", Tier=_TIER, Overwrite=True
            )
        return answer["Version"]

    def history(self, name: str) -> Sequence[LiveEdit]:
        """Return past live edits, oldest first; Parameter Store keeps the last hundred."""
        pages = self._client.get_paginator("get_parameter_history").paginate(
            Name=live_parameter(self._deployment, name)
        )
        try:
            with translated():
                past = [entry for page in pages for entry in page["Parameters"]]
        except NotFound:
            return []
        edits = [
            LiveEdit(
                text=entry["Value"],
                version=entry["Version"],
                edited_at=entry["LastModifiedDate"],
                edited_by=entry.get("LastModifiedUser", ""),
            )
            for entry in past
        ]
        return sorted(edits, key=lambda edit: edit.version)

    def _read(self, *names: str) -> "dict[str, ParameterTypeDef]":
        with translated():
            answer = self._client.get_parameters(Names=names)
        return {parameter["Name"]: parameter for parameter in answer["Parameters"]}


def _parse(cls: type[T], parameter: "ParameterTypeDef") -> T:
    row = from_json(parameter["Name"], parameter["Value"])
    if not isinstance(row, dict):
        raise ContractError(parameter["Name"], row, "write a JSON object")
    return decode(cls, row)


def _edit(parameter: "ParameterTypeDef") -> LiveEdit | None:
    if parameter["Value"] == NO_EDIT:
        return None
    return LiveEdit(
        text=parameter["Value"],
        version=parameter["Version"],
        edited_at=parameter["LastModifiedDate"],
    )
