"""Real processes that run the code of a test."""

import io
import sys
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.run_spec import RunSpec
from spindown.worker.child.code import Code
from spindown.worker.child.runner import ChildRunner
from spindown.worker.log import open_log
from tests.worker.child.batch import PRELUDE, Make


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def make(tmp_path: Path, output: io.StringIO) -> Iterator[Make]:
    made: list[ChildRunner] = []

    def make(source: str, **spec: Any) -> ChildRunner:
        root = tmp_path / "code"
        root.mkdir(exist_ok=True)
        (root / "job.py").write_text(PRELUDE + textwrap.dedent(source))
        values = {"entrypoint": "job:run", "item_timeout": timedelta(seconds=30), **spec}
        code = Code(root=root, spec=RunSpec(**values), digest="d")
        runner = ChildRunner(
            code,
            slot=1,
            scratch=tmp_path / "setup",
            python=sys.executable,
            env={"CUDA_VISIBLE_DEVICES": "1"},
            log=open_log(output),
        )
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.kill()
