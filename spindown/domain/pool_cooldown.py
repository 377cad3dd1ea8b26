"""Pool cooldown: which pools we stop requesting, and for how long.

A pool begins to cool down when:

- EC2 refuses it: capacity (``InsufficientInstanceCapacity``), a zone without addresses, or a code
  that nobody knows (``cooldown_reason``). ``aws.error`` says of which kind each of EC2's codes is;
- the account may not have it (``cooldown_reason`` too): this lasts longer, and counts apart;
- it takes a spot instance back (``control.machine_gone``);
- an instance of it never checks in (``control.plan.breaker``).

A full quota and a throttled call are neither: see ``quota_blocked_for`` in the policy, and
``control.plan.throttling``.

The ranking leaves out its offers while it cools down (``ranking.constraint``, "pool_cooldown"), and
so does the rest of a tick that has just met the refusal (``control.plan.launch_request``). It ends
when its time has passed, or when the pool gives an instance all the same.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.domain.offer import Pool
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.value_range import Tally

#: A pool that the account may not have is seldom allowed soon. Longer than a breaker stays open for
#: an account error, so that the launch after it asks for something else.
_FORBIDDEN_FOR = timedelta(minutes=30)
_FORBIDDEN_AT_MOST = timedelta(hours=2)
_DOUBLINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCooldown:
    """Until when a pool is asked for nothing, and why."""

    pool: Pool
    until: datetime
    #: How many times in a row the pool has cost a boot, or was forbidden; the cooldown doubles with
    #: each.
    strikes: Tally
    reason: Reason

    def is_active(self, now: datetime) -> bool:
        """Tell whether the pool is still cooling down."""
        return self.until > now


def cooldown_reason(refusal: str, *, is_forbidden: bool) -> Reason:
    """Return why a pool begins to cool down that EC2 has refused.

    Args:
        refusal: EC2's code.
        is_forbidden: whether the account may not have it; else it may be had soon.
    """
    code = ReasonCode.POOL_FORBIDDEN if is_forbidden else ReasonCode.POOL_REFUSED
    return Reason(code, {"refusal": refusal})


def cool_down(
    pool: Pool, previous: PoolCooldown | None, *, reason: Reason, now: datetime, policy: Policy
) -> PoolCooldown:
    """Return the cooldown of a pool that has just refused, reclaimed or failed an instance.

    3 minutes (``pool_cooldown``) after EC2 has refused it: asking costs nothing, and EC2 does not
    say when it would give what it refuses. That is no strike. What has cost a boot is one, and
    doubles that with each further up to 30 (``pool_cooldown_at_most``): 3, 6, 12, 24, 30. One that
    the account may not have: 30 minutes at first, up to 2 hours. After a time without cooldown that
    is longer than the longest, it begins anew; also if one of the two kinds follows the other.
    """
    most = longest_cooldown(reason, policy)
    first = _FORBIDDEN_FOR if _is_forbidden(reason) else policy.pool_cooldown
    strikes = 0
    if previous is not None and _is_forbidden(previous.reason) is _is_forbidden(reason):
        strikes = 0 if now - previous.until > most else previous.strikes
    span = first
    if reason.code is not ReasonCode.POOL_REFUSED:
        # The exponent is capped, so that no number of strikes overflows.
        span = first * 2.0 ** min(strikes, _DOUBLINGS)
        strikes += 1
    return PoolCooldown(
        pool=pool, until=now + min(span, max(most, first)), strikes=strikes, reason=reason
    )


def longest_cooldown(reason: Reason, policy: Policy) -> timedelta:
    """Return how long a pool cools down at most for a reason; it is remembered as long again."""
    return _FORBIDDEN_AT_MOST if _is_forbidden(reason) else policy.pool_cooldown_at_most


def _is_forbidden(reason: Reason) -> bool:
    return reason.code is ReasonCode.POOL_FORBIDDEN
