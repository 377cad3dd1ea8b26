"""Every script that runs on an instance, read by shellcheck."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spindown.contract.image import Kit, render_user_data
from tests.worker_system.kit import SYSTEM

SHELLCHECK = Path(sys.executable).with_name("shellcheck")
SCRIPTS = sorted(SYSTEM.glob("*.sh"))
KIT = Kit(uri="s3://bucket/kit.zip", sha256="0" * 64)


def complaints(script: Path) -> str:
    command = [str(SHELLCHECK), "--norc", str(script)]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_shellcheck_has_no_complaint_about_a_script(script: Path) -> None:
    assert complaints(script) == ""


@pytest.mark.parametrize("kit", [KIT, None], ids=["bootstrap", "baked"])
def test_shellcheck_has_no_complaint_about_user_data(kit: Kit | None, tmp_path: Path) -> None:
    script = tmp_path / "user_data.sh"
    script.write_text(render_user_data(kit))

    assert complaints(script) == ""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_runs_on_an_image_whose_sh_is_not_bash(script: Path) -> None:
    sh = shutil.which("dash") or "sh"

    assert script.read_text().startswith("#!/bin/sh\n")
    assert subprocess.run([sh, "-n", str(script)], check=False).returncode == 0
