"""The pages of docs say what the code says: settings, scenarios, files."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import BaseModel

from spindown.config import PolicyConfig
from spindown.domain.policy import Policy
from spindown.local.market import scenario
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


MARKET = [
    model
    for model in vars(scenario).values()
    if isinstance(model, type) and issubclass(model, BaseModel) and model.__name__[0] != "_"
]


@pytest.mark.parametrize("model", MARKET, ids=lambda model: model.__name__)
def test_every_key_of_a_scenario_is_in_the_guide(model: type[BaseModel]) -> None:
    guide = (PAGE.parent / "local.md").read_text(encoding="utf-8").partition("## Scenarios")[2]
    said = {word for span in re.findall(r"`([^`\n]+)`", guide) for word in re.findall(r"\w+", span)}

    assert {info.alias or name for name, info in model.model_fields.items()} <= said


PAGES = sorted(PAGE.parent.rglob("*.md"))
#: Pages leave out the first part of what is below it.
TOPS = ("", "spindown")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PAGE.parent).as_posix())
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    root = PAGE.parent.parent
    named = re.findall(r"`((?:\w+/)+\w+\.(?:py|sh|toml))\b", page.read_text(encoding="utf-8"))

    gone = [name for name in named if not any((root / top / name).is_file() for top in TOPS)]
    assert gone == []
