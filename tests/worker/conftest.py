"""Whole workers, stopped when their test ends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plant import Plant


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Callable[..., Plant]]:
    made: list[Plant] = []

    def make(*arguments: Any, **more: Any) -> Plant:
        made.append(Plant(tmp_path, *arguments, **more))
        return made[-1]

    yield make
    for one in made:
        if one.thread.is_alive():
            one.stop()
