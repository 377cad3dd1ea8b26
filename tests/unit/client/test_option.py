"""What a call does not know or would take apart is refused, and not left out."""

from pathlib import Path
from typing import Any

import pytest

from spindown import BadInput
from spindown.client.option import StreamOptions, SubmitOptions, check_items, check_options


class Table:
    """As a table of pandas, which yields the names of its columns."""

    def itertuples(self) -> None: ...


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"typ": "nlp"}, "did you mean type?"),
        ({"items_per_jobs": 3}, "did you mean items_per_job?"),
        ({"memory": 3}, "take this unknown option out"),
        (
            {"local_system": True},
            "give it to Workload(...) or FUNCTION.workload(...), which has the same calls",
        ),
        (
            {"local": True},
            "did you mean local_system=True of the workload, or FUNCTION.local for this process?",
        ),
        ({"params": 3}, 'give a dict such as {"width": 64}'),
        ({"requirements": ["vcpus"]}, 'give a dict such as {"memory_gib": 64}'),
        ({"items_per_job": "3"}, "give a whole number from 1"),
        ({"items_per_job": 0}, "give a whole number from 1"),
        ({"items_per_job": True}, "give a whole number from 1"),
        ({"key": 3}, "give a text"),
        ({"type": 3}, "give a text"),
        ({"tenant": 3}, "give a text"),
        ({"after": ["b"]}, "give the name of a batch"),
        ({"progress": 3}, "give True, False or a function of (done, failed, total)"),
        ({"on_exit": []}, "name one of cancel, detach"),
        ({"on_exit": "whatever"}, "name one of cancel, detach"),
        ({"timeout": "60"}, "give seconds, as a number of at least 0"),
        ({"timeout": float("nan")}, "give seconds, as a number of at least 0"),
    ],
)
def test_an_option_that_no_call_knows_is_refused(how: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_options(how, StreamOptions)

    assert caught.value.remedy == said


def test_each_call_has_its_own_options() -> None:
    check_options({"timeout": 3, "key": "k"}, StreamOptions)
    with pytest.raises(BadInput):
        check_options({"timeout": 3}, SubmitOptions)


@pytest.mark.parametrize("items", ["a text", b"bytes", {"a": 1}, Table(), 5, Path("a")])
def test_what_would_be_taken_apart_is_refused(items: Any) -> None:
    with pytest.raises(BadInput) as caught:
        check_items(items)

    assert caught.value.field == "items"


def test_lists_and_generators_are_items() -> None:
    check_items(["hello"])
    check_items(number for number in range(3))


def test_parameters_that_are_no_json_are_refused() -> None:
    with pytest.raises(BadInput, match=r"params is .*type object"):
        check_options({"params": {"a": object()}}, SubmitOptions)
