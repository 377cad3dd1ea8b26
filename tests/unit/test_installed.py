"""What is installed is found, and what is missing is told with the command that gets it."""

import sys
from pathlib import Path

import pytest

from spindown.installed import (
    EXTRAS,
    NotInstalled,
    cdk_command,
    how_to_get,
    install_command,
    require,
)

ROOT = Path(__file__).parents[2]


def test_the_pinned_cdk_and_its_node_are_found() -> None:
    node, program = map(Path, cdk_command())

    assert (node.name, program.name) == ("node", "cdk")
    assert program.resolve().is_relative_to(ROOT / "node_modules")


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_library_is_named(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require(extra)
    monkeypatch.setitem(sys.modules, EXTRAS[extra][-1], None)
    monkeypatch.setitem(sys.modules, EXTRAS[extra][0], None)
    with pytest.raises(NotInstalled, match=EXTRAS[extra][-1]):
        require(extra)


@pytest.mark.parametrize(
    ("left", "command"),
    [
        ("uv-receipt.toml", "uv tool install --force"),
        ("pipx_metadata.json", "pipx install --force"),
    ],
)
def test_a_tool_is_installed_again_by_what_installed_it(
    left: str, command: str, tmp_path: Path
) -> None:
    wheel = tmp_path / "spindown-1.0-py3-none-any.whl"
    (tmp_path / left).touch()

    assert install_command(["plot", "usage"], wheel, tmp_path) == f"{command} '{wheel}[plot,usage]'"
    assert install_command(["plot"], None, tmp_path) == f"{command} 'spindown[plot]'"


def test_a_checkout_is_set_up_by_make() -> None:
    assert how_to_get("plot") == f"make -C {ROOT} setup"
