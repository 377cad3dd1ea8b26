"""The network of the workers: the subnets that spindown.toml names, or a small VPC of our own."""

from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Network
from typing import cast

from aws_cdk import Acknowledgment, Aws, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from spindown.config import DeploymentConfig
from spindown.config.need import GATEWAYS
from spindown.infra.shared.stack import DeploymentStack

_RANGE = IPv4Network("10.0.0.0/16")
#: 32 blocks of 2,043 usable addresses: one for each letter at the end of a zone's name.
_SUBNET_PREFIX = 21


#: The security group of the functions of a stack.
_FUNCTIONS = "Functions"

#: What workers send, as rules of a security group describe it.
_WORKERS_SEND = "AWS and what code fetches"

#: What a VPC's addresses are from (Amazon VPC User Guide, "VPC CIDR blocks").
_PRIVATE_ADDRESSES = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")


class Network(Construct):
    """A VPC, one subnet a zone, and the security group of the workers.

    A VPC of our own costs nothing while no worker runs: it has public subnets, an internet gateway
    and gateway endpoints for S3 and DynamoDB, and no NAT gateway. Without public addresses it has
    private subnets, no internet gateway, and interface endpoints, which are billed. The letter of a
    zone gives its address block, so zones can be added and removed without moving the others.
    """

    #: Zone -> subnet id.
    subnets: Mapping[str, str]

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: DeploymentConfig,
        needed: Collection[str] = (),
    ) -> None:
        """Add it; ``needed``: services that workers call, by the names of their endpoints."""
        super().__init__(scope, construct_id)
        Validations.of(self).acknowledge(
            Acknowledgment(
                id="CloudFormation-Validate::W3010",
                reason="spindown.toml names the zones, since templates look nothing up",
            )
        )
        self._is_named = deployment.network is not None
        if deployment.network is not None:
            self.vpc_id: str = deployment.network.vpc_id
            self.subnets = dict(deployment.network.subnets)
            route_tables = list(deployment.network.route_tables)
            has_interfaces = deployment.network.interface_endpoints
            clients = deployment.network.endpoint_clients or _PRIVATE_ADDRESSES
        else:
            is_public = deployment.public_addresses
            self.vpc_id = self._make_vpc(deployment.name)
            route_table, self.subnets = self._make_subnets(deployment.zones, is_public=is_public)
            if is_public:
                self._make_way_out(route_table)
            route_tables, has_interfaces, clients = [route_table], not is_public, ()
        #: Whether it is ours, and nothing in it but by its endpoints leads out of it.
        self._is_closed = not self._is_named and not deployment.public_addresses
        self.security_group_id = self._make_security_group(deployment.egress)
        if route_tables:
            self._make_gateways(deployment.region, route_tables, has_layers="ecr.dkr" in needed)
        if has_interfaces:
            services = sorted({*needed} - {*GATEWAYS})
            placed = place_function(self)
            groups = [self.security_group_id, *(placed.security_group_ids or [] if placed else [])]
            self._make_interfaces(deployment.region, services, groups, clients)

    @property
    def subnet_arns(self) -> list[str]:
        """Return the ARNs of its subnets.

        A subnet that another account shares has an ARN of that account (AWS RAM User Guide,
        "Shareable AWS resources"), which the file does not name. The id is one subnet's anyway.
        """
        owner = "*" if self._is_named else Aws.ACCOUNT_ID
        return [
            f"arn:{Aws.PARTITION}:ec2:{Aws.REGION}:{owner}:subnet/{one}"
            for one in self.subnets.values()
        ]

    def _make_vpc(self, name: str) -> str:
        vpc = ec2.CfnVPC(
            self,
            "Vpc",
            cidr_block=str(_RANGE),
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=[{"key": "Name", "value": name}],
        )
        return vpc.attr_vpc_id

    def _make_subnets(
        self, zones: Sequence[str], *, is_public: bool
    ) -> tuple[str, Mapping[str, str]]:
        route_table = ec2.CfnRouteTable(self, "Routes", vpc_id=self.vpc_id)
        blocks = list(_RANGE.subnets(new_prefix=_SUBNET_PREFIX))
        subnets = {}
        for zone in zones:
            letter = zone[-1]
            subnet = ec2.CfnSubnet(
                self,
                f"Subnet{letter.upper()}",
                vpc_id=self.vpc_id,
                availability_zone=zone,
                cidr_block=str(blocks[ord(letter) - ord("a")]),
                map_public_ip_on_launch=is_public,
            )
            ec2.CfnSubnetRouteTableAssociation(
                self,
                f"Routes{letter.upper()}",
                route_table_id=route_table.attr_route_table_id,
                subnet_id=subnet.attr_subnet_id,
            )
            subnets[zone] = subnet.attr_subnet_id
        return route_table.attr_route_table_id, subnets

    def _make_way_out(self, route_table: str) -> None:
        gateway = ec2.CfnInternetGateway(self, "Gateway")
        attachment = ec2.CfnVPCGatewayAttachment(
            self,
            "GatewayAttachment",
            vpc_id=self.vpc_id,
            internet_gateway_id=gateway.attr_internet_gateway_id,
        )
        ec2.CfnRoute(
            self,
            "ToInternet",
            route_table_id=route_table,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=gateway.attr_internet_gateway_id,
        ).add_resource_dependency(attachment)

    def _make_gateways(self, region: str, route_tables: Sequence[str], *, has_layers: bool) -> None:
        """Add the endpoints that cost nothing; ``has_layers``: images come from Amazon ECR."""
        layers = [_pull_layers(region)] if has_layers else []
        for service, name in (("S3", "s3"), ("DynamoDb", "dynamodb")):
            ec2.CfnVPCEndpoint(
                self,
                f"{service}Endpoint",
                vpc_id=self.vpc_id,
                service_name=f"com.amazonaws.{region}.{name}",
                vpc_endpoint_type="Gateway",
                route_table_ids=list(route_tables),
                policy_document=self._bound(name, *(layers if name == "s3" else [])),
            )

    def _make_interfaces(
        self, region: str, services: Sequence[str], groups: Sequence[str], clients: Sequence[str]
    ) -> None:
        """Add the endpoints that are billed by the hour, zone by zone.

        Their private names lead every host of the VPC to them. So in a VPC that others use too they
        answer ``clients`` beside our ``groups``, or these would be cut off from the services.
        """
        if not services:
            return
        sources = [
            *({"source_security_group_id": group} for group in groups),
            *({"cidr_ip": block} for block in clients),
        ]
        group = ec2.CfnSecurityGroup(
            self,
            "Endpoints",
            group_description="Spindown endpoints: requests to AWS come in",
            vpc_id=self.vpc_id,
            security_group_ingress=[
                ec2.CfnSecurityGroup.IngressProperty(
                    ip_protocol="tcp",
                    from_port=443,
                    to_port=443,
                    description="Requests to AWS",
                    **source,
                )
                for source in sources
            ],
        )
        for service in services:
            ec2.CfnVPCEndpoint(
                self,
                f"{service.title().replace('.', '')}Endpoint",
                vpc_id=self.vpc_id,
                service_name=f"com.amazonaws.{region}.{service}",
                vpc_endpoint_type="Interface",
                subnet_ids=list(self.subnets.values()),
                security_group_ids=[group.attr_group_id],
                private_dns_enabled=True,
                policy_document=self._bound(service),
            )

    def _bound(self, service: str, *beside: iam.PolicyStatement) -> iam.PolicyDocument | None:
        """Return the policy of an endpoint: credentials of this account alone pass through it.

        So code that has another account's sends nothing out by an endpoint. Endpoints of a network
        that others use too have none: it would hold for all its hosts. Nor have those beside a way
        to the internet, where packages come from S3 by requests that nobody signs.
        """
        if not self._is_closed:
            return None
        own = {"StringEquals": {"aws:PrincipalAccount": Aws.ACCOUNT_ID}}
        statement = iam.PolicyStatement(
            sid="OwnCredentials",
            principals=[iam.AnyPrincipal()],
            actions=[f"{service.partition('.')[0]}:*"],
            resources=["*"],
            conditions=own,
        )
        return iam.PolicyDocument(statements=[statement, *beside])

    def _make_security_group(self, egress: Sequence[str]) -> str:
        """Make the group of all workers: no way in, and every way out that is not closed.

        No template knows the list of addresses that a gateway endpoint answers, so in a network
        without another way out port 443 is open to all addresses.
        """
        if egress:
            ways = [_way_out(one) for one in egress]
        elif self._is_closed:
            ways = [_way_out("0.0.0.0/0:443")]
        else:
            ways = [
                ec2.CfnSecurityGroup.EgressProperty(
                    ip_protocol="-1", cidr_ip="0.0.0.0/0", description=_WORKERS_SEND
                )
            ]
        group = ec2.CfnSecurityGroup(
            self,
            "Workers",
            group_description="Spindown workers: nothing comes in",
            vpc_id=self.vpc_id,
            security_group_egress=ways,
        )
        return group.attr_group_id


def place_function(scope: Construct) -> lambda_.CfnFunction.VpcConfigProperty | None:
    """Return where the traffic of a function leaves; None: it is in no VPC of the account.

    A function has no public address, whatever the subnet gives (AWS Lambda Developer Guide, "Giving
    Lambda functions access to resources in an Amazon VPC").
    """
    stack = DeploymentStack.holding(scope)
    network = stack.deployment.regions[stack.region].network
    if network is None or not network.function_subnets:
        return None
    found = stack.node.try_find_child(_FUNCTIONS)
    # They send by HTTPS, and ask the VPC's own name servers.
    group = found or ec2.CfnSecurityGroup(
        stack,
        _FUNCTIONS,
        group_description="Spindown functions: nothing comes in",
        vpc_id=network.vpc_id,
        security_group_egress=[
            _way_out("0.0.0.0/0:443", "AWS, and the webhook"),
            *(
                _way_out("0.0.0.0/0:53", "Name servers of the VPC", protocol=protocol)
                for protocol in ("udp", "tcp")
            ),
        ],
    )
    return lambda_.CfnFunction.VpcConfigProperty(
        subnet_ids=list(network.function_subnets),
        security_group_ids=[cast("ec2.CfnSecurityGroup", group).attr_group_id],
    )


def _way_out(
    allowed: str, why: str = _WORKERS_SEND, *, protocol: str = "tcp"
) -> ec2.CfnSecurityGroup.EgressProperty:
    """Return the rule of one entry of ``egress``: ``CIDR:PORT`` or ``pl-...:PORT``."""
    where, _, port = allowed.partition(":")
    to = {"destination_prefix_list_id": where} if where.startswith("pl-") else {"cidr_ip": where}
    return ec2.CfnSecurityGroup.EgressProperty(
        ip_protocol=protocol,
        from_port=int(port),
        to_port=int(port),
        description=why,
        **to,
    )


def _pull_layers(region: str) -> iam.PolicyStatement:
    """Allow reading layers of images from the bucket of Amazon ECR, which signs for each.

    Source: Amazon ECR User Guide, "Interface VPC endpoints", "Minimum Amazon S3 Bucket
    Permissions for Amazon ECR".
    """
    return iam.PolicyStatement(
        sid="PullLayers",
        principals=[iam.AnyPrincipal()],
        actions=["s3:GetObject"],
        resources=[f"arn:{Aws.PARTITION}:s3:::prod-{region}-starport-layer-bucket/*"],
    )
