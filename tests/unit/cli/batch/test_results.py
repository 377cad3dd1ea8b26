"""What ``spindown results`` prints is JSON on every screen."""

import io
import json
from contextlib import redirect_stdout

import pytest

from spindown.cli import results


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("item", ["plain", "\u6f22\u5b57", "caf\u00e9", "\ud800"])
def test_a_record_reads_back_whatever_the_screen_can_spell(encoding: str, item: str) -> None:
    screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding)

    with redirect_stdout(screen):
        screen.write(results.to_json({"item": item}))

    screen.seek(0)
    assert json.loads(screen.read()) == {"item": item}
