"""The true optimum of few jobs, by a mixed-integer program: what bounds are tested against.

Machines of one kind, time in steps of half a minute. Whole numbers: machines up, boots begun,
and for each job the step of its start. A machine is paid from the beginning of its boot; a job
occupies one machine from its start on. What HiGHS proves as its best bound is used, so that a
time limit never makes the optimum look larger than it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import highspy

from spindown.simulator import Arrival

STEP = 30.0
_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """Machine seconds that are paid for."""

    #: No schedule needs fewer.
    least: float
    #: A schedule that needs so many was found.
    found: float


def optimum(arrivals: Sequence[Arrival], *, start_within: float, boot: float) -> Optimum:
    """Return the least machine time that serves all jobs with no start after ``start_within``.

    Args:
        arrivals: on machines of the reference GPU.
        start_within: seconds.
        boot: seconds.
    """
    boots = round(boot / STEP)
    first = int(arrivals[0].at // STEP) - boots
    takes = [max(1, round(each.work_seconds / STEP)) for each in arrivals]
    comes = [int(-(-each.at // STEP)) - first for each in arrivals]
    waits = int(start_within // STEP)
    length = max(c + waits + t for c, t in zip(comes, takes, strict=True)) + 1
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.silent()
    model.setOptionValue("time_limit", _SECONDS)
    model.setOptionValue("threads", 1)
    most = len(arrivals)
    up = [model.addVariable(lb=0, ub=most) for _ in range(length)]
    begun = [model.addIntegral(lb=0, ub=most) for _ in range(length)]
    running: list[list[highspy.highs.highs_linear_expression]] = [[] for _ in range(length)]
    for come, take in zip(comes, takes, strict=True):
        starts = {at: model.addBinary() for at in range(come, come + waits + 1)}
        model.addConstr(sum(starts.values()) == 1)
        for at, start in starts.items():
            for step in range(at, at + take):
                running[step].append(start)
    for step in range(length):
        if running[step]:
            model.addConstr(sum(running[step]) <= up[step])
        before = up[step - 1] if step else 0.0
        ready = begun[step - boots] if step >= boots else 0.0
        model.addConstr(up[step] <= before + ready)
    model.minimize(sum(up) + boots * sum(begun))
    info = model.getInfo()
    return Optimum(least=info.mip_dual_bound * STEP, found=info.objective_function_value * STEP)
