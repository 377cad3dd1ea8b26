"""Every value in every field of every stored row: the whole table."""

import pytest

from tests.hostile.row import VALUES, all_fields, check

pytestmark = pytest.mark.proof


@pytest.mark.parametrize(("sort", "name"), all_fields())
def test_no_value_of_a_field_stops_a_tick(sort: str, name: str) -> None:
    for value in VALUES:
        check(sort, name, value)
