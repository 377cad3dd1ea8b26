"""Hostile code has a cell of its own."""

from collections.abc import Iterator

import pytest

from tests.hostile.cell import Cell, a_cell


@pytest.fixture
def cell() -> Iterator[Cell]:
    with a_cell() as made:
        yield made
