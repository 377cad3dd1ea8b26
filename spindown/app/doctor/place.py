"""Where and from what instances start: images, subnets, inputs, and a rehearsed launch."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from spindown.app.doctor.fact import Facts, Unknown
from spindown.app.doctor.finding import Finding, Severity
from spindown.app.doctor.subject import DoctorCase, DoctorSubject, RequiredImage
from spindown.app.port import ImageView, Refusal, RefusalKind, SubnetView

#: The person who asks may lack what the scaler has.
_NOT_YOURS = frozenset({"AccessDenied", "UnauthorizedOperation"})


def check_images(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    """Judge each image that an instance starts from."""
    for case in subject.cases:
        for image in case.images:
            found = [
                _check_image(case, region, image, facts.regions[region].images[image.parameter])
                for region in sorted(case.places)
            ]
            # Where one region can launch, what is wrong in another one stops nothing.
            is_stuck = not any(finding.severity is Severity.GOOD for finding in found)
            yield from (one if is_stuck else _as_warning(one) for one in found)


def _as_warning(finding: Finding) -> Finding:
    is_bad = finding.severity is Severity.BLOCKED
    return replace(finding, severity=Severity.WARNING) if is_bad else finding


def _check_image(
    case: DoctorCase, region: str, image: RequiredImage, found: ImageView | Unknown
) -> Finding:
    what = f"image of {case.name} in {region}, {image.architecture}"
    if isinstance(found, Unknown):
        return Finding(
            what=what,
            found=f"{image.parameter}: {found.reason}",
            needed="the id of an image that may be used",
            remedy=_remedy_image(case, image),
            severity=Severity.BLOCKED if found.is_missing else Severity.WARNING,
        )
    wrong = _what_is_wrong(case, image, found)
    root = f"root {found.root_device} of {found.root_gib} GiB"
    return Finding(
        what=what,
        found=f"{found.image_id}, {found.state}, {found.architecture}, {root}",
        needed="" if wrong is None else wrong[0],
        remedy="" if wrong is None else wrong[1],
        severity=Severity.GOOD if wrong is None else Severity.BLOCKED,
    )


def _what_is_wrong(
    case: DoctorCase, image: RequiredImage, found: ImageView
) -> tuple[str, str] | None:
    if found.state != "available":
        return "an image that is available", _remedy_image(case, image)
    if found.architecture != image.architecture:
        return f"one for {image.architecture}", _remedy_image(case, image)
    if found.root_gib > case.root_gib:
        remedy = (
            f"set root_volume_gib = {found.root_gib} in [workload.{case.name}.image], and deploy"
        )
        return f"a root of {case.root_gib} GiB at most", remedy
    if found.root_device != image.root_device:
        # EC2 would attach a second disk under our name, and leave the root as small as it is.
        device = f'root_device = "{found.root_device}"'
        return (
            f"a root device {image.root_device}",
            f"set {device} in [workload.{case.name}.image], and deploy",
        )
    return None


def _remedy_image(case: DoctorCase, image: RequiredImage) -> str:
    if image.parameter.startswith("/imagebuilder/"):
        return "wait for its pipeline, or: aws imagebuilder start-image-pipeline-execution"
    return f"name another parameter in [workload.{case.name}.image]"


def check_subnets(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    """Judge each subnet that is named; one that a deploy will make cannot be judged."""
    workers: dict[tuple[str, str, str], int] = {}
    for case in subject.cases:
        for region, place in case.places.items():
            for zone, subnet_id in place.subnets.items():
                key = (region, zone, subnet_id)
                workers[key] = workers.get(key, 0) + case.policy.max_workers
    stuck = {id_ for case in subject.cases for id_ in _subnets_of_stuck(case, facts)}
    for (region, zone, subnet_id), count in sorted(workers.items()):
        if not subnet_id:
            continue
        seen = facts.regions[region].subnets
        if isinstance(seen, Unknown):
            yield Finding(
                what=f"subnet {subnet_id}",
                found=seen.reason,
                needed=f"{count} free addresses in {zone}",
                remedy="grant ec2:DescribeSubnets",
                severity=Severity.WARNING,
            )
            continue
        found = {subnet.subnet_id: subnet for subnet in seen}.get(subnet_id)
        yield _check_subnet(subnet_id, zone, count, found, is_stuck=subnet_id in stuck)


def _check_subnet(
    subnet_id: str, zone: str, workers: int, found: SubnetView | None, *, is_stuck: bool
) -> Finding:
    what, needed = f"subnet {subnet_id}", f"{workers} free addresses in {zone}"
    bad = Severity.BLOCKED if is_stuck else Severity.WARNING
    remedy = "name another subnet in [deployment.network], and deploy"
    if found is None:
        return Finding(what=what, found="missing", needed=needed, remedy=remedy, severity=bad)
    seen = f"{found.free_addresses} free addresses in {found.zone}"
    if found.zone != zone or found.free_addresses < 1:
        return Finding(what=what, found=seen, needed=needed, remedy=remedy, severity=bad)
    is_short = found.free_addresses < workers
    return Finding(
        what=what,
        found=seen,
        needed=needed,
        remedy="free some addresses, or name a larger subnet" if is_short else "",
        severity=Severity.WARNING if is_short else Severity.GOOD,
    )


def _subnets_of_stuck(case: DoctorCase, facts: Facts) -> Iterator[str]:
    """Yield the subnets of a workload none of whose subnets can take an instance."""
    own = [(r, zone, s) for r, place in case.places.items() for zone, s in place.subnets.items()]
    usable = (_is_usable(region, zone, subnet_id, facts) for region, zone, subnet_id in own)
    if not any(usable):
        yield from (subnet_id for _, _, subnet_id in own)


def _is_usable(region: str, zone: str, subnet_id: str, facts: Facts) -> bool:
    seen = facts.regions[region].subnets
    if not subnet_id or isinstance(seen, Unknown):
        return True
    return any(
        subnet.subnet_id == subnet_id and subnet.zone == zone and subnet.free_addresses > 0
        for subnet in seen
    )


#: What is read -> what that takes, and where it is fixed.
_READING = {
    "input": (
        "s3:ListBucket, s3:GetObject; its KMS key if it has one",
        "fix `inputs` or `models`, or the policy of the bucket",
    ),
    "secret": (
        "a secret in this region that the workers' role may read",
        "fix `run.secrets`, or make it: aws secretsmanager create-secret, aws ssm put-parameter",
    ),
    "key": (
        "an enabled KMS key whose policy lets the account's roles use it",
        "fix `kms_keys`, or the policy of the key",
    ),
}


def check_reading(facts: Facts) -> Iterator[Finding]:
    """Judge whether what a workload may read can be read."""
    for kind, found in (("input", facts.inputs), ("secret", facts.secrets), ("key", facts.keys)):
        needed, remedy = _READING[kind]
        for name, trouble in sorted(found.items()):
            yield Finding(
                what=f"{kind} {name}",
                found=_GOOD[kind] if trouble is None else trouble.reason,
                needed="" if trouble is None else needed,
                remedy="" if trouble is None else remedy,
                severity=Severity.GOOD if trouble is None else _without(kind, trouble),
            )


_GOOD = {"input": "readable", "secret": "there", "key": "enabled"}


def _without(kind: str, trouble: Unknown) -> Severity:
    """Return how bad it is: a worker without its secret ends itself before its first job."""
    is_fatal = kind == "secret" and trouble.is_missing
    return Severity.BLOCKED if is_fatal else Severity.WARNING


def check_rehearsals(
    rehearsals: Mapping[tuple[str, str], Refusal | Unknown | None],
) -> Iterator[Finding]:
    """Judge what EC2 said to launches that it was only asked to check."""
    for (name, pool), answer in sorted(rehearsals.items()):
        what, needed = f"rehearsed launch of {name}", "a request that EC2 would carry out"
        if answer is None:
            yield Finding(what=what, found=f"EC2 would launch {pool}")
        elif isinstance(answer, Unknown):
            yield Finding(what=what, found=answer.reason, needed=needed, severity=Severity.WARNING)
        else:
            yield Finding(
                what=what,
                found=f"{pool}: {answer.code}: {answer.message}",
                needed=needed,
                remedy="have somebody rehearse it who may launch"
                if answer.code in _NOT_YOURS
                else "fix what EC2 names, in the file or the account, and deploy",
                severity=_weigh(answer),
            )


def _weigh(refusal: Refusal) -> Severity:
    is_blocked = refusal.kind is RefusalKind.ACCOUNT and refusal.code not in _NOT_YOURS
    return Severity.BLOCKED if is_blocked else Severity.WARNING
