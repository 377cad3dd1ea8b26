"""Settings and what came of them, for tests."""

from dataclasses import replace

from spindown.cli.advise.search import AdvisedSettings, Trial
from spindown.domain.policy import Policy
from spindown.simulator import SimResult, simulate
from tests.builders import AT_ONCE
from tests.simulator.scene import HOUR, a_scenario

RESULT = simulate(a_scenario(length=HOUR), Policy(), 1)


def a_result(dollars: float, *, p95: float = 60.0, undone: int = 0, **types: int) -> SimResult:
    return replace(
        RESULT,
        dollars=dollars,
        wait=replace(RESULT.wait, p95=p95),
        jobs_done=RESULT.jobs - undone,
        types={name.replace("_", "."): count for name, count in types.items()},
    )


def a_present(*, p95: float = 60.0, **types: int) -> Trial:
    settings = AdvisedSettings(policy=AT_ONCE, families_denied=frozenset())
    return Trial(settings=settings, result=a_result(100.0, p95=p95, **types))
