"""Have EC2 check launches with the scaler's own role, and make none.

So people see before the first job what an organisation's policy, a boundary or a wrong grant
forbids. Each check takes a call out of the bucket that launches need, and whoever may wake the
scaler may ask for one. So only some are made in each minute.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

from spindown.contract import row as rows
from spindown.contract.rehearsal import (
    Rehearsal,
    RehearsalRequest,
    RehearsedLaunch,
    RehearsedPool,
)
from spindown.contract.row import REHEARSED_PER_MINUTE
from spindown.contract.settings import WorkloadSettings
from spindown.control.observe.observation import launch_tags
from spindown.control.policy_edit import current_policy
from spindown.domain.bake_or_bootstrap import ImageHistory, find_image
from spindown.domain.policy import Policy
from spindown.error import (
    AccessDenied,
    ContractError,
    PreconditionFailed,
    Throttled,
    Unreachable,
)
from spindown.ledger import account_key
from spindown.ledger.partition import Partition
from spindown.port import ControlPorts, LaunchOverride, LaunchRequest, RefusalKind, When, Write

#: No further launch is checked after this, so that the last ends within ``SCALER_TIMEOUT``.
_BEGIN_WITHIN = timedelta(seconds=60)


def rehearse(request: RehearsalRequest, ports: ControlPorts) -> Rehearsal:
    """Check the launches one by one, until all are done or EC2 asks to slow down.

    Raises:
        NotFound: there is no such workload.
        ContractError: a pool is none in which the workload may run.
    """
    settings, policy = current_policy(request.workload, ports)
    images = _read_images(request.workload, ports) if settings.bake is not None else {}
    requests = [_launch_request(pool, settings, policy, images, ports) for pool in request.pools]
    if not _take_calls(len(requests), ports):
        why = f"{REHEARSED_PER_MINUTE} launches a minute are rehearsed, no more"
        return Rehearsal(ended=why, is_used_up=True)
    begun, done = ports.clock.elapsed(), list[RehearsedLaunch]()
    for pool, launch in zip(request.pools, requests, strict=True):
        if ports.clock.elapsed() - begun > _BEGIN_WITHIN:
            return Rehearsal(launches=tuple(done), ended="it took too long")
        try:
            refusal = ports.compute.rehearse(launch)
        except (Throttled, Unreachable) as exc:
            return Rehearsal(launches=tuple(done), ended=str(exc))
        except AccessDenied as exc:
            # The credentials are at fault; a launch that is not allowed is UnauthorizedOperation.
            done.append(
                RehearsedLaunch(
                    pool=pool, code="AccessDenied", kind=RefusalKind.ACCOUNT, said=str(exc)
                )
            )
            continue
        done.append(
            RehearsedLaunch(pool=pool)
            if refusal is None
            else RehearsedLaunch(
                pool=pool, code=refusal.code, kind=refusal.kind, said=refusal.message
            )
        )
    return Rehearsal(launches=tuple(done))


def _take_calls(count: int, ports: ControlPorts) -> bool:
    """Count calls to this minute's; tell whether it had room for them."""
    key, minute = account_key(rows.REHEARSED), rows.minute_of(ports.clock.now())
    first = Write(
        key=key, when=When(differs={"minute": minute}), set={"minute": minute, "count": count}
    )
    room = When(equals={"minute": minute}, at_most={"count": REHEARSED_PER_MINUTE - count})
    # The first of a minute begins the count, and whoever is not the first adds to it.
    for write in (first, Write(key=key, when=room, add={"count": count})):
        with suppress(PreconditionFailed):
            ports.table.write(write)
            return True
    return False


def _read_images(workload: str, ports: ControlPorts) -> Mapping[str, ImageHistory]:
    """Return what was baked, by architecture."""
    found = Partition(ports.table.query(rows.control_partition(workload), rows.IMAGE))
    return found.named(ImageHistory, rows.IMAGE)


def _launch_request(
    pool: RehearsedPool,
    settings: WorkloadSettings,
    policy: Policy,
    images: Mapping[str, ImageHistory],
    ports: ControlPorts,
) -> LaunchRequest:
    """Return the request that a launch in this pool would be, but for its token."""
    place = settings.regions.get(pool.region)
    if place is None or pool.zone not in place.subnets:
        raise ContractError("event.pools", pool.zone, f"name zones of {settings.name}")
    if pool.architecture not in place.templates:
        raise ContractError("event.pools", pool.architecture, f"name one of {settings.name}")
    now, stamp = ports.clock.now(), "" if settings.bake is None else settings.bake.stamp
    known = images.get(pool.architecture)
    image, _ = find_image(known, stamp=stamp, region=pool.region, now=now)
    return LaunchRequest(
        client_token=f"rehearsal-{now:%Y%m%d%H%M%S%f}-{ports.random.getrandbits(64):016x}",
        region=pool.region,
        template=place.template(pool.architecture, pool.capacity_type),
        capacity_type=pool.capacity_type,
        overrides=(
            LaunchOverride(
                instance_type=pool.instance_type,
                zone=pool.zone,
                subnet_id=place.subnets[pool.zone],
            ),
        ),
        count=1,
        image=image,
        tags=launch_tags(
            ports.deployment(),
            settings,
            region=pool.region,
            launch_id="rehearsal",
            lease_until=now + policy.max_lifetime + policy.lifetime_grace,
        ),
    )
