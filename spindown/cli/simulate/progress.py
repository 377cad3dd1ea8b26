"""Simulations that run side by side in sight of a person."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from spindown.cli.simulate.contest import Contestant, ContestOutcome, Report, run_contest
from spindown.simulator import SimScenario


def run_in_sight(
    scenario: SimScenario, contestants: Sequence[Contestant], *, seed: int, processes: int | None
) -> list[ContestOutcome]:
    """Run a contest under a progress bar; ``processes`` None: as many as processors."""
    with _progress_of([one.name for one in contestants]) as report:
        return run_contest(
            scenario,
            contestants,
            seed=seed,
            processes=processes or os.cpu_count() or 1,
            report=report,
        )


@contextmanager
def _progress_of(names: Sequence[str]) -> Iterator[Report]:
    """Draw one bar on stderr for all simulations together, if that is a terminal."""
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    shares = [0.0] * len(names)
    with progress:
        task = progress.add_task("simulating", total=float(len(names)))

        def report(number: int, share: float) -> None:
            shares[number] = share
            open_now = [name for name, done in zip(names, shares, strict=True) if 0.0 < done < 1.0]
            words = f"simulating {open_now[0]}" if open_now else "simulating"
            progress.update(task, completed=sum(shares), description=words)

        yield report
