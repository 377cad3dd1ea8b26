"""The page of settings says what the code says."""

from dataclasses import fields

import pytest

from spindown.config import PolicyConfig
from spindown.domain.policy import Policy
from tools.reference import PAGE, TABLES, Table, render


def test_the_page_of_settings_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run python tools/reference.py"


def test_every_threshold_of_the_policy_is_on_the_page() -> None:
    (policy,) = (table for table in TABLES if table.model is PolicyConfig)

    assert set(policy.meanings) == {field.name for field in fields(Policy)}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_every_key_has_one_meaning_and_every_meaning_a_key(table: Table) -> None:
    assert set(table.meanings) == set(table.model.model_fields)
    assert all(meaning.endswith(".") for meaning in table.meanings.values())
