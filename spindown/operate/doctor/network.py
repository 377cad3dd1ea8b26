"""Whether instances in subnets of one's own reach what they need: an address, NAT, or endpoints."""

from collections.abc import Iterator, Mapping

from spindown.operate.doctor.fact import Facts
from spindown.operate.doctor.finding import Finding, Severity
from spindown.operate.doctor.subject import DoctorCase, DoctorSubject, named_subnets
from spindown.operate.doctor.unknown import Unknown
from spindown.port import SubnetWay

#: Of these there are endpoints in a route table, which cost nothing.
_GATEWAYS = frozenset({"s3", "dynamodb"})


def check_networks(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    """Check that subnets lie in the VPC that is named beside them, where their groups are made.

    Those of functions are looked for too; Lambda takes one address in each.
    """
    for region in subject.regions:
        network = subject.networks.get(region)
        if network is None:
            continue
        seen = facts.regions[region].subnets
        # Where it is unknown, the workers' subnets tell it.
        known = {} if isinstance(seen, Unknown) else {one.subnet_id: one for one in seen}
        for subnet_id in sorted(named_subnets(network) & known.keys()):
            if known[subnet_id].vpc_id != network.vpc_id:
                yield Finding(
                    what=f"VPC of {subnet_id}",
                    found=known[subnet_id].vpc_id,
                    needed=network.vpc_id,
                    remedy="name a subnet of this VPC, or the other as vpc_id",
                    severity=Severity.BLOCKED,
                )
        for subnet_id in () if isinstance(seen, Unknown) else network.function_subnets:
            found = known.get(subnet_id)
            free = found.free_addresses if found else 0
            lacking = Severity.WARNING if found else Severity.BLOCKED
            yield Finding(
                what=f"functions' subnet {subnet_id}",
                found=f"{free} free addresses in {found.zone}" if found else "missing",
                needed="" if free else "one free address, if functions are not yet there",
                remedy="" if free else "name another subnet in function_subnets",
                severity=Severity.GOOD if free else lacking,
            )


def check_ways(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    """Check each subnet; those that a deploy made have all they need, if the account lets them."""
    for region in subject.regions:
        ways = facts.ways.get(region, {})
        network = subject.networks.get(region)
        own = network.subnets.values() if network else ()
        if isinstance(ways, Unknown):
            yield Finding(
                what=f"routes in {region}",
                found=ways.reason,
                needed="read access to see whether workers reach what they need",
                remedy=ways.remedy("grant ec2:DescribeRouteTables and ec2:DescribeVpcEndpoints"),
                severity=Severity.WARNING,
            )
            continue
        cases = [case for case in subject.cases if region in case.places]
        functions = network.function_subnets if network else ()
        for subnet_id, way in sorted(ways.items()):
            if subnet_id in functions:
                yield _check_functions(way)
            if subnet_id not in own and way.gateway_block == "off":
                continue
            if way.is_public and not subject.may_have_addresses:
                yield Finding(
                    what=f"addresses of {subnet_id}",
                    found="its instances get public addresses",
                    needed="none, by public_addresses = false",
                    remedy="turn off MapPublicIpOnLaunch of the subnet, or name another",
                    severity=Severity.BLOCKED,
                )
            yield _check_way(way, cases, is_home=region == subject.region)


def _check_functions(way: SubnetWay) -> Finding:
    """Check where functions are: they have no public address, whatever the subnet gives."""
    what = f"way out of functions in {way.subnet_id}"
    if way.default_route is None:
        return _tell_unseen(what)
    if way.default_route and not way.is_public_route:
        return Finding(what=what, found=way.default_route)
    return Finding(
        what=what,
        found=f"{way.default_route}, and functions have no public address"
        if way.is_public_route
        else "no default route",
        needed="the internet: the Price List has no endpoint in most regions",
        remedy="route 0.0.0.0/0 to a NAT or transit gateway, or name another subnet",
        severity=Severity.BLOCKED,
    )


def _tell_unseen(what: str) -> Finding:
    return Finding(
        what=what,
        found="its routes cannot be seen",
        needed="a default route to a NAT or transit gateway, or for workers endpoints",
        remedy="ask the account that shares the subnet",
        severity=Severity.WARNING,
    )


def check_ports(subject: DoctorSubject) -> Iterator[Finding]:
    """Check that what is installed may be fetched; Ubuntu's packages come by plain HTTP."""
    for region, egress in sorted(subject.egress.items()):
        names = sorted(c.name for c in subject.cases if region in c.places and c.installs)
        if names and not any(one.endswith(":80") for one in egress):
            yield Finding(
                what=f"egress in {region}",
                found="no destination at port 80",
                needed=f"{', '.join(names)}: Ubuntu's packages come by port 80",
                remedy="add the address of your mirror, or 0.0.0.0/0:80, to egress; not for images "
                "whose packages come by HTTPS",
                severity=Severity.WARNING,
            )


def _check_way(way: SubnetWay, cases: list[DoctorCase], *, is_home: bool) -> Finding:
    what = f"way out of {way.subnet_id}"
    if way.default_route is None:
        return _tell_unseen(what)
    if way.reaches_internet:
        by = "public addresses" if way.is_public else "no public addresses"
        return Finding(what=what, found=f"{way.default_route}, {by}")
    why = {case.name: case.needs_internet for case in cases if case.needs_internet}
    if not is_home:
        why |= {case.name: "its queue is at home, and no endpoint leads there" for case in cases}
    if way.is_public_route and way.is_public:
        found = f"VPC Block Public Access ({way.gateway_block}) closes its internet gateway"
        way_out = "exclude its VPC from the block, or route 0.0.0.0/0 to a NAT gateway"
    else:
        found = "its instances get no public address" if way.is_public_route else "no default route"
        way_out = "route 0.0.0.0/0 to a NAT gateway, or name a subnet that gives addresses"
    if why:
        return Finding(
            what=what,
            found=found,
            needed="; ".join(f"{name}: {reason}" for name, reason in sorted(why.items())),
            remedy=way_out,
            severity=Severity.BLOCKED,
        )
    needed = frozenset().union(*(case.endpoints for case in cases))
    missing = sorted(needed - way.endpoints)
    listed = _spell(needed)
    if not missing:
        return Finding(what=what, found=f"endpoints of {listed}")
    return Finding(
        what=what,
        found=f"{found}, and no endpoint of {_spell(frozenset(missing))}",
        needed=f"endpoints of {listed}",
        remedy="make them in the VPC, with private DNS names, for this subnet; or route 0.0.0.0/0 "
        "to a NAT gateway",
        # Endpoints of another VPC may serve it by routes and names of the organisation's.
        severity=Severity.WARNING,
    )


def _spell(services: frozenset[str]) -> str:
    gateways, others = sorted(services & _GATEWAYS), sorted(services - _GATEWAYS)
    kinds: Mapping[str, list[str]] = {"gateway": gateways, "interface": others}
    return ", ".join(f"{', '.join(names)} ({kind})" for kind, names in kinds.items() if names)
