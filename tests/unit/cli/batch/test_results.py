"""What ``spindown results`` prints is JSON on every screen."""

import io
import json
import sys

import pytest

from spindown.cli.batch import results


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("item", ["plain", "\u6f22\u5b57", "caf\u00e9", "\ud800"])
def test_a_record_reads_back_whatever_the_screen_can_spell(
    monkeypatch: pytest.MonkeyPatch, encoding: str, item: str
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))

    sys.stdout.write(results.to_json({"item": item}))
    sys.stdout.flush()

    assert json.loads(written.getvalue().decode(encoding)) == {"item": item}
