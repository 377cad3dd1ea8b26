"""No answer of AWS is trusted from one author alone.

The adapters are tested on moto, and the deployed system runs on MiniStack. Here it is the other way
round: the adapters' suites run on MiniStack, and moto keeps the state of a deployed system. Where
the two differ, ``docs/proof/difference.toml`` says which side AWS's documentation supports.
"""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from spindown.domain.verification import VerifyCheck
from spindown.job.policy_in_force import read_standing
from tests.e2e.world import ROOT, World, deployed, found, parsed, write_deployment
from tests.proof.moto_state import SERVICES, MotoState
from tests.proof.record import record_part

pytestmark = pytest.mark.proof

_DEPLOYED = "the deployed core: "
_MINUTES = 30


def explanations() -> dict[str, str]:
    """Return pattern -> side that is right, of every known difference."""
    text = (ROOT / "docs" / "proof" / "difference.toml").read_text(encoding="utf-8")
    return {one["where"]: one["right"] for one in tomllib.loads(text)["difference"]}


def run_suites(report: Path) -> tuple[Counter[str], list[str], int]:
    """Run the adapters' suites on MiniStack.

    Return service -> tests that have asked it, the tests that failed, and how many asked at all.
    """
    options = ["-q", "-n", "0", "--world", "ministack", f"--junitxml={report}"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "tests/ports", *options],
        check=False,
        cwd=ROOT,
        capture_output=True,
        timeout=60 * _MINUTES,
    )
    asked, failed, count = Counter[str](), [], 0
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest has written it
        services = [one.attrib["value"].split() for one in case.iter("property")]
        asked.update(*services)
        count += bool(services)
        if case.find("failure") is not None or case.find("error") is not None:
            module = case.attrib["classname"].removeprefix("tests.ports.")
            failed.append(f"{module}::{case.attrib['name']}")
    return asked, sorted(failed), count


def test_another_emulator_answers_the_adapters_alike(tmp_path: Path) -> None:
    asked, failed, count = run_suites(tmp_path / "report.xml")

    patterns = [one for one in explanations() if not one.startswith(_DEPLOYED)]
    assert [x for x in failed if not any(re.fullmatch(p, x) for p in patterns)] == []
    assert [p for p in patterns if not any(re.fullmatch(p, x) for x in failed)] == []
    # A suite that asks nobody would pass anywhere.
    assert {service.replace("-", "") for service in asked} > SERVICES
    record_part(
        "world",
        "adapters",
        {"tests": count, "by_service": dict(sorted(asked.items())), "differ": failed},
    )


@pytest.fixture(scope="module")
def state() -> MotoState:
    return MotoState()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, state: MotoState) -> Iterator[World]:
    path = write_deployment(tmp_path_factory.mktemp("moto"), "verify")
    with deployed(path, emulate=state.load) as world:
        state.move(world.client)
        yield world


def test_a_deployment_works_on_state_that_moto_keeps(world: World, state: MotoState) -> None:
    done = world.spindown("verify", "--yes", "--json", "--items", "40")

    told = parsed(done)
    verdicts = {one["check"]: one["passed"] for one in told["checks"]}
    assert verdicts == dict.fromkeys([str(check) for check in VerifyCheck], True), told
    assert {service for service, _ in state.answered} == SERVICES
    rewritten = f"{_DEPLOYED}dynamodb ExecuteStatement"
    assert rewritten in explanations()
    record_part(
        "world",
        "deployed",
        {
            "checks": sorted(verdicts),
            "operations": sorted(f"{service} {name}" for service, name in state.answered),
        },
    )


def test_a_message_without_sense_is_set_apart_in_moto_too(world: World) -> None:
    sent = world.send("verify", "no job at all")

    assert world.dead_letter("verify", sent)["body"] == "no job at all"


def test_an_edit_of_the_policy_is_heard_through_moto(world: World) -> None:
    done = world.spindown("policy", "set", "verify", "max_workers=0")

    assert done.returncode == 0, done.stderr
    table = world.session.control_ports().table
    found(lambda: read_standing(table, "verify").policy.max_workers == 0 or None)
