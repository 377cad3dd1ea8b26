"""Attack the local system for a while, let it recover, and check what came of it.

``python -m tests.proof.chaos --seconds 75 --seed 7`` replays the attacks of a run by its seed;
when exactly each strikes still depends on the machine.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from random import Random, SystemRandom

from tests.proof.chaos.run import run
from tests.proof.record import record


def main() -> None:
    """Run, print the figures, store them, and fail if anything was lost, doubled or left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=75.0, help="how long to attack")
    parser.add_argument("--jobs", type=int, default=30, help="jobs of 20 items")
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run")
    parser.add_argument("--keep", type=Path, default=None, help="keep logs here")
    chosen = parser.parse_args()
    seed = SystemRandom().randrange(1_000_000) if chosen.seed is None else chosen.seed
    sys.stderr.write(f"chaos: seed {seed}\n")
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="spindown-chaos-") as scratch:
        figures = run(
            chosen.keep or Path(scratch),
            random=Random(seed),
            seed=seed,
            seconds=chosen.seconds,
            jobs=chosen.jobs,
        )
    figures = {"seed": seed, **figures, "seconds_in_all": round(time.monotonic() - began_at)}
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    if figures["faults"]:
        sys.exit(f"chaos: seed {seed}: {figures['faults']}")
    record("chaos", figures)


if __name__ == "__main__":
    main()
