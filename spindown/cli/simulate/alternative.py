"""Several ways to do the same work, each simulated once, on as many processors as there are."""

import multiprocessing
import operator
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from multiprocessing import resource_tracker
from threading import Thread
from time import monotonic
from typing import Any, Self

from spindown.cli.render.bar import open_bar
from spindown.cli.render.line import print_aside
from spindown.cli.render.screen import format_wait
from spindown.domain.policy import Policy
from spindown.error import BadInput
from spindown.simulator import (
    BASELINES,
    OURS_ON_DEMAND,
    Run,
    SimResult,
    SimScenario,
    on_demand_only,
    simulate_baseline,
)

#: Seconds between two looks at what the processes have done.
_LOOK_SECONDS = 0.2
#: Events between two reports.
_REPORT_EVERY = 50
#: In a file: after so long without a line there is one.
_QUIET_SECONDS = 5.0
#: Of the time that a simulation of our code takes: a simple model's, roughly.
_MODEL_SHARE = 0.02
#: Shares of the work from and up to which it is told how long the rest takes.
_KNOWN_FROM, _NEARLY_ALL = 0.02, 0.99

#: (start_within, drain_within) in minutes, from short waits to long ones.
_PROMISE_MINUTES = ((1, 2), (2, 4), (4, 8), (10, 20), (40, 80))

#: Name -> description of each way to compare with this policy.
WAYS = {
    OURS_ON_DEMAND: "this policy, buying on demand only",
    **{name: baseline.title for name, baseline in BASELINES.items()},
}

#: Called with the number of an alternative and the share of it that is done.
Report = Callable[[int, float], None]


class Role(StrEnum):
    """Why an alternative is simulated."""

    OURS = "ours"
    #: The same policy under another promise.
    FRONTIER = "frontier"
    BASELINE = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One way to do the work: the baseline of that name, or our code under a policy."""

    name: str
    title: str
    role: Role
    policy: Policy
    #: Families that are not bought, in place of those of the scenario.
    families_denied: frozenset[str] | None = None

    @property
    def key(self) -> object:
        """Return what its result depends on."""
        return self.name if _is_model(self) else "", self.policy, self.families_denied


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternativeResult:
    """The result of one alternative."""

    alternative: Alternative
    result: SimResult

    @property
    def is_whole(self) -> bool:
        """Tell whether all jobs were done, so that its cost can be compared."""
        return self.result.jobs_done == self.result.jobs


def ours(policy: Policy) -> Alternative:
    """Return the policy that is asked about."""
    return Alternative(name="spindown", title="this policy", role=Role.OURS, policy=policy)


def baselines(asked: str, policy: Policy) -> list[Alternative]:
    """Return baselines by name or by the start of it, in their own order.

    Args:
        asked: names separated by commas; ``all``; ``none``.
        policy: its ``max_workers`` bounds them too.

    Raises:
        BadInput: there is none of a name.
    """
    words = [word.strip() for word in asked.split(",") if word.strip()]
    if words == ["none"]:
        return []
    wanted: set[str] = set()
    for word in words or [""]:
        found = [name for name in WAYS if word == "all" or (word and name.startswith(word))]
        if not found:
            raise BadInput("--against", word, f"name some of {', '.join(WAYS)}, all or none")
        wanted |= {word} if word in WAYS else set(found)
    return [
        Alternative(
            name=name,
            title=title,
            role=Role.BASELINE,
            policy=on_demand_only(policy) if name == OURS_ON_DEMAND else policy,
        )
        for name, title in WAYS.items()
        if name in wanted
    ]


def frontier(policy: Policy) -> list[Alternative]:
    """Return the policy under promises from minutes to more than an hour.

    Promises that its deadline contradicts are left out: `policy set` would refuse them.
    """
    most = None if policy.finish_within is None else policy.finish_within - policy.boot_estimate
    return [
        Alternative(
            name=f"start {start} min, drain {drain} min",
            title=f"this policy, start_within {start}m, drain_within {drain}m",
            role=Role.FRONTIER,
            policy=replace(
                policy,
                start_within=timedelta(minutes=start),
                drain_within=timedelta(minutes=drain),
            ),
        )
        for start, drain in _PROMISE_MINUTES
        if most is None or timedelta(minutes=start) < most
    ]


def simulate_all(
    scenario: SimScenario,
    alternatives: Sequence[Alternative],
    *,
    seed: int,
    processes: int,
    report: Report,
) -> list[AlternativeResult]:
    """Simulate every alternative on the same world; the result does not depend on ``processes``."""
    processes = min(processes, len(alternatives))
    with Simulations(scenario, seed=seed, processes=processes) as simulations:
        results = simulations.run(alternatives, report)
    return [
        AlternativeResult(alternative=one, result=result)
        for one, result in zip(alternatives, results, strict=True)
    ]


#: More than a search makes; what comes later reports no progress.
_SHARES = 256


class Simulations:
    """Simulates alternatives on the same world, each once, on several processors side by side.

    It is left as a context. What it has begun for later then ends, whether asked for or not.
    """

    def __init__(self, scenario: SimScenario, *, seed: int, processes: int) -> None:
        self._scenario, self._seed, self._processes = scenario, seed, processes
        self._known: dict[object, SimResult] = {}
        self._begun: dict[object, tuple[int, Future[SimResult]]] = {}
        self._pool: ProcessPoolExecutor | None = None
        if processes > 1:
            # A fork of a process that draws a progress bar in a thread could hang.
            context = multiprocessing.get_context("spawn")
            self._shares = context.Array("d", _SHARES, lock=False)
            self._pool = ProcessPoolExecutor(
                processes,
                mp_context=context,
                initializer=_inherit,
                initargs=(scenario, seed, self._shares),
            )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all that runs."""
        if self._pool is None:
            return
        is_busy = any(not future.done() for _, future in self._begun.values())
        self._pool.shutdown(wait=not is_busy, cancel_futures=True)
        for process in multiprocessing.active_children() if is_busy else ():
            process.terminate()
            process.join()

    def run(
        self, asked: Sequence[Alternative], report: Report, likely: Iterable[Alternative] = ()
    ) -> list[SimResult]:
        """Return the results of what is asked for, in its order.

        Args:
            asked: what to simulate.
            report: told which of them has got how far.
            likely: what may be asked for later, the likeliest first. A processor that has nothing
                else to do begins with it.
        """
        if self._pool is None:
            return [self._alone(one, partial(report, number)) for number, one in enumerate(asked)]
        # Simple models take no time.
        for one in sorted(asked, key=_is_model):
            self._begin(one, self._pool)
        self._watch(asked, report, iter(likely), self._pool)
        return [self._begun[one.key][1].result() for one in asked]

    def _alone(self, one: Alternative, report: Callable[[float], None]) -> SimResult:
        if one.key not in self._known:
            self._known[one.key] = _simulate(self._scenario, one, self._seed, report)
        return self._known[one.key]

    def _begin(self, one: Alternative, pool: ProcessPoolExecutor) -> None:
        if one.key not in self._begun:
            number = len(self._begun)
            # A Ctrl-C pressed meanwhile takes effect at the end of this block.
            with _deaf_children():
                future = pool.submit(_simulate_apart, number, one)
            self._begun[one.key] = number, future

    def _watch(
        self,
        asked: Sequence[Alternative],
        report: Report,
        likely: Iterator[Alternative],
        pool: ProcessPoolExecutor,
    ) -> None:
        pending = {self._begun[one.key][1] for one in asked}
        while pending:
            done, pending = wait(pending, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
            for number, one in enumerate(asked):
                report(number, self._share(one))
            while pending and self._has_room() and (later := next(likely, None)) is not None:
                self._begin(later, pool)

    def _share(self, one: Alternative) -> float:
        number, future = self._begun[one.key]
        return 1.0 if future.done() else self._shares[number] if number < _SHARES else 0.0

    def _has_room(self) -> bool:
        return sum(not future.done() for _, future in self._begun.values()) < self._processes


def _simulate(
    scenario: SimScenario, one: Alternative, seed: int, report: Callable[[float], None]
) -> SimResult:
    if _is_model(one):
        baseline = BASELINES[one.name]
        result = simulate_baseline(scenario, baseline, seed, max_workers=one.policy.max_workers)
    else:
        result = _run_ours(_without(scenario, one.families_denied), one.policy, seed, report)
    report(1.0)
    return result


def _is_model(one: Alternative) -> bool:
    return one.role is Role.BASELINE and one.name in BASELINES


def _without(scenario: SimScenario, families: frozenset[str] | None) -> SimScenario:
    if families is None:
        return scenario
    return replace(scenario, requirements=replace(scenario.requirements, families_denied=families))


def _run_ours(
    scenario: SimScenario, policy: Policy, seed: int, report: Callable[[float], None]
) -> SimResult:
    run = Run(scenario, policy, seed)
    steps = 0
    while not run.is_over:
        run.step()
        steps += 1
        if steps % _REPORT_EVERY == 0:
            report(min(run.agenda.seconds / max(scenario.length, 1.0), 0.99))
    return run.result()


#: What a process of the pool works with: set once, when it starts.
_inherited: dict[str, Any] = {}


def _inherit(scenario: SimScenario, seed: int, shares: Any) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    _inherited.update(scenario=scenario, seed=seed, shares=shares)


def _end_with_parent() -> None:
    """End this process with the one that started it, however that ends."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _simulate_apart(number: int, one: Alternative) -> SimResult:
    shares = _inherited["shares"]

    def report(share: float) -> None:
        if number < _SHARES:
            shares[number] = share

    return _simulate(_inherited["scenario"], one, _inherited["seed"], report)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Start child processes that ignore Ctrl-C, which a terminal sends to them too.

    Otherwise each would print a traceback, or go on simulating. The parent ends them.
    """
    # The resource tracker unblocks the signal when it starts, so it must start first.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def simulate_with_progress(
    scenario: SimScenario, alternatives: Sequence[Alternative], *, seed: int, processes: int | None
) -> list[AlternativeResult]:
    """Simulate alternatives under a progress bar; ``processes`` None: one for each processor."""
    with progress_of(alternatives) as report:
        return simulate_all(
            scenario,
            alternatives,
            seed=seed,
            processes=processes or os.cpu_count() or 1,
            report=report,
        )


@contextmanager
def progress_of(alternatives: Sequence[Alternative]) -> Iterator[Report]:
    """Draw one bar on stderr for all simulations together; in a file, a line for each that ends."""
    names = [one.name for one in alternatives]
    weights = [_MODEL_SHARE if _is_model(one) else 1.0 for one in alternatives]
    if not sys.stderr.isatty():
        yield _line_of_each(names, weights)
        return
    shares, began = [0.0] * len(names), monotonic()
    with open_bar() as show:

        def report(number: int, share: float) -> None:
            shares[number] = share
            open_now = [name for name, each in zip(names, shares, strict=True) if 0.0 < each < 1.0]
            done, said = _say_done(shares, weights, monotonic() - began)
            show(f"{' '.join(['simulating', *open_now[:1]])}, {said}", round(100 * done), 100)

        yield report


def _say_done(
    shares: Sequence[float], weights: Sequence[float], seconds: float
) -> tuple[float, str]:
    """Return the share of all work that is done, and in words with how long the rest takes."""
    done = sum(map(operator.mul, shares, weights)) / sum(weights)
    is_known = _KNOWN_FROM <= done < _NEARLY_ALL
    left = f", about {format_wait(seconds / done - seconds)} left" if is_known else ""
    return done, f"{done:.0%} done{left}"


def _line_of_each(
    names: Sequence[str], weights: Sequence[float], now: Callable[[], float] = monotonic
) -> Report:
    """Return what prints a line at once, one for each simulation that ends, and one now and then.

    Args:
        names: of the simulations.
        weights: how long each takes, beside the others.
        now: seconds, ever more.
    """
    over: set[int] = set()
    shares = [0.0] * len(names)
    began = said_at = now()
    print_aside(f"simulating {', '.join(dict.fromkeys(names))} ...")

    def report(number: int, share: float) -> None:
        nonlocal said_at
        shares[number] = share
        if share >= 1.0 and number not in over:
            over.add(number)
            said_at = now()
            print_aside(f"simulated {names[number]}, {len(over)} of {len(names)}")
        elif now() - said_at >= _QUIET_SECONDS and len(over) < len(names):
            said_at = now()
            print_aside(f"simulating, {_say_done(shares, weights, now() - began)[1]}")

    return report
