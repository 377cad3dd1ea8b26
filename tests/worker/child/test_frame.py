"""What a result takes in the worker's memory is known before it is read."""

import tracemalloc

import pytest

from spindown.contract.codec import load_finite
from spindown.worker.child.frame import weigh

_MANY = 20_000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"[{'[],' * _MANY}[]]", id="empty lists"),
        pytest.param(f"[{'[[1]],' * _MANY}[]]", id="nested lists"),
        pytest.param("[" + '{"a":1},' * _MANY + "{}]", id="dictionaries"),
        pytest.param(f"[{'999,' * _MANY}9]", id="numbers"),
        pytest.param(f"[{'0.12345678,' * _MANY}9]", id="fractions"),
        pytest.param("[" + '"ab",' * _MANY + '""]', id="short texts"),
        pytest.param('["' + "a" * 10**6 + '"]', id="one long text"),
        pytest.param('["' + "a" * 10**6 + '\U0001f600"]', id="a text with a wide character"),
        pytest.param('["' + "a" * 10**6 + '\\ud83d\\ude00"]', id="the same escaped"),
        pytest.param('["' + "a" * 10**6 + '\u4e2d"]', id="a text with a character of China"),
    ],
)
def test_a_text_of_json_weighs_what_it_takes(text: str) -> None:
    data = text.encode()
    tracemalloc.start()
    try:
        value = load_finite(data)
        takes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert value
    assert 0.9 * takes <= weigh(data) <= 3.0 * takes
