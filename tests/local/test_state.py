from pathlib import Path

import pytest

from spindown.error import BadInput
from spindown.local.state import StateDirectory


def test_a_directory_is_held_by_one_system_at_a_time(tmp_path: Path) -> None:
    refused = pytest.raises(BadInput, match="run `spindown local down` first")
    with StateDirectory(tmp_path).held(), refused, StateDirectory(tmp_path).held():
        raise AssertionError
    with StateDirectory(tmp_path).held():
        pass


def test_tells_others_where_the_holder_is_found(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    assert directory.holder() is None
    with directory.held():
        assert directory.holder() == {}
        directory.tell(endpoint="http://127.0.0.1:1")
        assert directory.holder() == {"endpoint": "http://127.0.0.1:1", "pid": directory.pid}
    assert directory.holder() is None


def test_what_a_killed_holder_told_counts_for_nothing(tmp_path: Path) -> None:
    StateDirectory(tmp_path).tell(endpoint="http://127.0.0.1:1")
    assert StateDirectory(tmp_path).holder() is None
