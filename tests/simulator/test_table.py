"""The table of a simulation is read as the one in memory is, though it copies and reads less."""

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.codec import decode
from spindown.contract.row import RateRow
from spindown.error import ContractError, PreconditionFailed
from spindown.memory import MemoryClock, MemoryTable
from spindown.port import Key, When, Write, merge

KEY = Key(partition="w#work", sort="rate#job")
CLOCK = MemoryClock(datetime(2026, 1, 5, tzinfo=UTC))

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "count": st.integers(0, 9) | st.floats(0, 9) | st.just("many"),
    "samples": st.lists(st.floats(0, 9), max_size=3),
    "updated_at": st.none() | st.just("2026-01-05T00:00:00.000000Z"),
    "colour": st.text(max_size=2),
}
_CHANGES = st.one_of(
    st.just(Write(key=KEY, delete=True)),
    st.builds(lambda row: Write(key=KEY, set=row), st.fixed_dictionaries({}, optional=_FIELDS)),
    st.builds(
        lambda hours, reports: Write(key=KEY, add={"hours": hours, "reports": reports}),
        st.floats(0, 9),
        st.integers(0, 9),
    ),
)


def _read(table: MemoryTable) -> object:
    try:
        return decode(RateRow, table.get(KEY) or {})
    except ContractError as exc:
        return str(exc)


@given(st.lists(st.tuples(_CHANGES, st.booleans()), max_size=12))
def test_a_changed_row_reads_as_if_it_were_read_anew(
    changes: list[tuple[Write, bool]],
) -> None:
    plain, simulated = MemoryTable(CLOCK), MemoryTable(CLOCK, shares_rows=True)

    for change, is_read in changes:
        plain.write(change)
        simulated.write(change)
        assert not is_read or _read(simulated) == _read(plain)
    assert _read(simulated) == _read(plain)


@given(st.lists(_CHANGES, max_size=6))
def test_merged_writes_leave_what_the_single_ones_leave(writes: list[Write]) -> None:
    one_by_one, at_once = MemoryTable(CLOCK), MemoryTable(CLOCK)

    for write in writes:
        one_by_one.write(write)
    at_once.transact(merge(writes))

    assert at_once.get(KEY) == one_by_one.get(KEY)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_row_made_then_changed_is_made_only_where_none_is(
    is_there: bool,
) -> None:
    table = MemoryTable(CLOCK)
    made = Write(key=KEY, when=When(exists=False), set={"colour": "red"})
    changed = Write(key=KEY, when=When(exists=True), set={"count": 1})
    if is_there:
        table.write(Write(key=KEY, set={"colour": "blue"}))

    with pytest.raises(PreconditionFailed) if is_there else nullcontext():
        table.transact(merge([made, changed]))

    assert table.get(KEY) == ({"colour": "blue"} if is_there else {"colour": "red", "count": 1})


def test_a_row_deleted_after_a_change_keeps_its_condition() -> None:
    table = MemoryTable(CLOCK)
    table.write(Write(key=KEY, set={"count": 2}))
    changed = Write(key=KEY, when=When(equals={"count": 1}), set={"colour": "red"})

    with pytest.raises(PreconditionFailed):
        table.transact(merge([changed, Write(key=KEY, delete=True)]))

    assert table.get(KEY) == {"count": 2}
