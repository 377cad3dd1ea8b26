"""An error shows a value as spindown.toml has it."""

from typing import Any

import pytest

from spindown import config
from spindown.domain.policy import Dispatch
from spindown.error import BadInput, ConfigError
from tests.unit.config.document import with_value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a", "'a'"),
        (True, "true"),
        (Dispatch.DEDICATED, "'dedicated'"),
        ({"vcpus": 8, "names": ["a", False]}, "{ vcpus = 8, names = ['a', false] }"),
        ({}, "{}"),
        (None, "not set"),
        ([1.5] * 1000, f"[{'1.5, ' * 1000}"[:117] + "..."),
    ],
)
def test_a_value_is_shown_as_a_file_has_it(value: object, shown: str) -> None:
    assert str(BadInput("key", value, "change it")) == f"key is {shown}: change it"


def test_a_value_of_many_levels_is_shown_all_the_same() -> None:
    value: Any = []
    for _ in range(500):
        value = {"a": [value]}
    assert str(BadInput("key", value, "change it")).startswith("key is { a = [{ a = [")


def test_ceilings_are_shown_without_what_they_do_not_say() -> None:
    document = with_value("workload.ocr.policy.requirements_at_most", {"vcpus": 8})
    with pytest.raises(ConfigError) as refused:
        config.parse(document)
    assert " is { vcpus = 8 }: " in str(refused.value)
