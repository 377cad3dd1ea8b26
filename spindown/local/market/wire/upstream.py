"""What was deployed, as the market needs it: launch templates and subnets.

They were made by CloudFormation in the emulator behind the market, so they are asked for there,
over the same ASGI interface and with the requests that botocore itself would send.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlencode

import botocore.parsers
import botocore.serialize
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from spindown.ec2sim import LaunchTemplate, Subnet
from spindown.local.market.wire.asgi import App, call
from spindown.local.market.wire.protocol import ApiError, decoded, operation_model, output_shape

_HOST = "localhost"
#: The emulator's name for an error to EC2's.
_CODES = {"InvalidLaunchTemplateId.NotFoundException": "InvalidLaunchTemplateId.NotFound"}


class DeployedNetwork(Protocol):
    """Where launches take their launch template and their place from."""

    async def launch_template(
        self, *, region: str, template_id: str | None, name: str | None, version: str
    ) -> LaunchTemplate:
        """Return a version (a number, $Latest or $Default) of a template; raise `ApiError`."""

    async def launch_templates(self, *, region: str) -> Sequence[LaunchTemplate]:
        """Return all templates of a region, each at its latest version."""

    async def subnets(self, *, region: str, subnet_ids: Sequence[str]) -> Mapping[str, Subnet]:
        """Return subnets by id; raise `ApiError` when one does not exist.

        Without ids, return those of the default network, one for each zone.
        """


class UpstreamNetwork:
    """The deployed network of the emulator behind the market."""

    def __init__(self, upstream: App) -> None:
        """Ask `upstream`, signing with credentials of our own: emulators take any."""
        self._upstream = upstream
        self._credentials = Credentials("test", "test")

    async def launch_template(
        self, *, region: str, template_id: str | None, name: str | None, version: str
    ) -> LaunchTemplate:
        """Ask DescribeLaunchTemplateVersions for one version."""
        named = {"LaunchTemplateId": template_id} if template_id else {"LaunchTemplateName": name}
        answer = await self._ask(
            "DescribeLaunchTemplateVersions", {**named, "Versions": [version]}, region=region
        )
        versions = answer.get("LaunchTemplateVersions", [])
        if not versions:
            message = f"Could not find launch template version {version}"
            raise ApiError("InvalidLaunchTemplateId.VersionNotFound", message)
        return _template(versions[0])

    async def launch_templates(self, *, region: str) -> Sequence[LaunchTemplate]:
        """Ask DescribeLaunchTemplates, then for the latest version of each."""
        answer = await self._ask("DescribeLaunchTemplates", {}, region=region)
        return [
            await self.launch_template(
                region=region, template_id=row["LaunchTemplateId"], name=None, version="$Latest"
            )
            for row in answer.get("LaunchTemplates", [])
        ]

    async def subnets(self, *, region: str, subnet_ids: Sequence[str]) -> Mapping[str, Subnet]:
        """Ask DescribeSubnets."""
        asked: dict[str, Any] = {"SubnetIds": list(subnet_ids)}
        if not subnet_ids:
            asked = {"Filters": [{"Name": "default-for-az", "Values": ["true"]}]}
        answer = await self._ask("DescribeSubnets", asked, region=region)
        return {
            row["SubnetId"]: Subnet(
                subnet_id=row["SubnetId"], vpc_id=row["VpcId"], zone=row["AvailabilityZone"]
            )
            for row in answer.get("Subnets", [])
        }

    async def _ask(
        self, operation: str, parameters: Mapping[str, Any], *, region: str
    ) -> dict[str, Any]:
        model = operation_model("ec2", operation)
        fields = botocore.serialize.create_serializer("ec2").serialize_to_request(parameters, model)
        body = urlencode(fields["body"]).encode()
        request = AWSRequest(
            method="POST", url=f"http://{_HOST}/", data=body, headers=fields["headers"]
        )
        SigV4Auth(self._credentials, "ec2", region).add_auth(request)
        headers = [(b"host", _HOST.encode()), (b"content-length", str(len(body)).encode())]
        headers += [
            (name.lower().encode(), value.encode("latin-1"))
            for name, value in request.headers.items()
        ]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/",
            "raw_path": b"/",
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 0),
            "server": (_HOST, 80),
        }
        response = await call(self._upstream, scope, body)
        parsed: dict[str, Any] = botocore.parsers.create_parser("ec2").parse(
            {"status_code": response.status, "headers": {}, "body": response.body},
            output_shape("ec2", operation),
        )
        if "Error" in parsed:
            error = parsed["Error"]
            code = _CODES.get(error["Code"], error["Code"])
            raise ApiError(code, error["Message"], status=response.status)
        return parsed


def _template(version: Mapping[str, Any]) -> LaunchTemplate:
    data = version["LaunchTemplateData"]
    tags = {
        spec["ResourceType"]: {tag["Key"]: tag["Value"] for tag in spec.get("Tags", [])}
        for spec in data.get("TagSpecifications", [])
    }
    groups = data.get("SecurityGroupIds", [])
    for interface in data.get("NetworkInterfaces", []):
        groups = groups or interface.get("Groups", [])
    profile = data.get("IamInstanceProfile", {})
    return LaunchTemplate(
        template_id=version["LaunchTemplateId"],
        version=str(version["VersionNumber"]),
        image_id=data.get("ImageId", ""),
        user_data=decoded(data.get("UserData")),
        profile_arn=profile.get("Arn") or profile.get("Name"),
        security_groups=tuple(groups),
        shutdown_behaviour=data.get("InstanceInitiatedShutdownBehavior", "stop"),
        metadata_tags=data.get("MetadataOptions", {}).get("InstanceMetadataTags") == "enabled",
        instance_tags=tags.get("instance", {}),
        spot_request_tags=tags.get("spot-instances-request", {}),
    )
