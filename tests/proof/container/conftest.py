"""Engines and benches: docker's daemon and podman, each started once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.container.bench import Bench
from tests.proof.container.engine import ENGINES, Engine


@pytest.fixture(scope="module", params=sorted(ENGINES))
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    engine = ENGINES[request.param](tmp_path_factory.mktemp("engine"))
    yield engine
    engine.close()


@pytest.fixture
def bench(engine: Engine, tmp_path: Path) -> Iterator[Bench]:
    umask = os.umask(0o007)  # as worker/system/spindown-worker.service
    bench = Bench(engine, tmp_path)
    yield bench
    os.umask(umask)
    for runner in bench.runners:
        runner.kill()
    assert engine.containers() == []
