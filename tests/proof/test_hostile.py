"""The whole hostile suite: code, messages, rows, accounts; counts go to docs/proof/hostile.json."""

import subprocess
import sys
from pathlib import Path
from random import Random
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings

from tests.control import ControlWorld
from tests.hostile import account, lie, message, row
from tests.proof.record import record_part

pytestmark = pytest.mark.proof

_CODE = ("test_exhaustion.py", "test_files.py", "test_process.py")
_MESSAGES = 2000
_ACCOUNTS = 500


def test_no_value_of_a_field_stops_a_tick() -> None:
    places = row.all_fields()
    for place in places:
        for value in row.VALUES:
            row.check((place, value))
    record_part("hostile", "rows", {"fields": len(places), "lies": len(places) * len(row.VALUES)})


def test_no_two_values_of_rows_stop_a_tick() -> None:
    random, pairs = Random(11), list(row.pairs())
    for one, other in pairs:
        row.check((one, random.choice(row.VALUES)), (other, random.choice(row.VALUES)))
    record_part("hostile", "pairs_of_lies", len(pairs))


def test_no_lie_of_a_worker_is_cheaper_or_makes_room() -> None:
    most = ControlWorld().policy.max_workers
    lies = lie.all_lies()
    for each in lies:
        found = lie.live_with(each, hours=2)
        assert found.booked >= 0.9 * found.billed > 0, (each, found)
        assert found.most <= most, (each, found)
        # A machine for each place in each tick, the first of all included.
        assert found.launched <= most * (2 * 60 + 1), (each, found)
    record_part("hostile", "lies_each_minute", len(lies))


def test_no_two_lies_of_a_worker_are_cheaper_or_make_room() -> None:
    most = ControlWorld().policy.max_workers
    lies = lie.pairs_of_lies()
    for each in lies:
        found = lie.live_with(each, hours=1)
        assert found.booked >= 0.9 * found.billed > 0, (each, found)
        assert found.most <= most, (each, found)
    record_part("hostile", "pairs_of_lies_each_minute", len(lies))


def test_hostile_messages_end_and_honest_work_is_done() -> None:
    stories = copies = 0

    @settings(max_examples=_MESSAGES)
    @given(message.MESSAGES)
    def story(sent: list[tuple[str, int]]) -> None:
        nonlocal stories, copies
        message.check(sent)
        stories, copies = stories + 1, copies + sum(times for _, times in sent)

    story()
    record_part("hostile", "messages", {"stories": stories, "messages": copies})


def test_accounts_get_what_they_allow() -> None:
    accounts = 0

    @settings(max_examples=_ACCOUNTS)
    @given(account.RULES)
    def story(rules: account.Rules) -> None:
        nonlocal accounts
        account.check(rules)
        accounts += 1

    story()
    record_part("hostile", "accounts", accounts)


def test_no_attack_of_code_gets_out(tmp_path: Path) -> None:
    report = tmp_path / "attacks.xml"
    folder = Path(row.__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not bench", f"--junit-xml={report}"]
    run = subprocess.run(
        [*command, *(str(folder / name) for name in _CODE)],
        cwd=folder.parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )

    assert run.returncode == 0, run.stdout[-4000:]
    (suite,) = ET.parse(report).getroot()  # noqa: S314 - of our own making
    assert suite.get("skipped") == "0", "be root on Linux, with setpriv and prlimit"
    record_part("hostile", "attacks_of_code", int(suite.get("tests", "0")))
