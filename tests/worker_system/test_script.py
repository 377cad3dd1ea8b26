"""Every script that runs on an instance, read by shellcheck."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spindown.contract.image import Kit, UvBinary, render_bake, render_user_data
from tests.worker_system.kit import SYSTEM

SHELLCHECK = Path(sys.executable).with_name("shellcheck")
SCRIPTS = sorted(SYSTEM.glob("*.sh"))
UV = UvBinary("s3://bucket/uv.bin", "0" * 64)
KIT = Kit(uri="s3://bucket/kit.zip", sha256="0" * 64, uv={"aarch64": UV, "x86_64": UV})


def complaints(script: Path) -> str:
    command = [str(SHELLCHECK), "--norc", str(script)]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_shellcheck_has_no_complaint_about_a_script(script: Path) -> None:
    assert complaints(script) == ""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(render_user_data(KIT), id="bootstrap"),
        pytest.param(render_user_data(KIT, stamp="5" * 64), id="baked"),
        pytest.param(render_user_data(None), id="own image"),
        pytest.param(render_bake(KIT, code_uri="s3://b/c.zip", stamp="5" * 64), id="bake"),
        pytest.param(render_bake(KIT, code_uri=None, stamp="5" * 64), id="bake without code"),
    ],
)
def test_shellcheck_has_no_complaint_about_a_rendered_script(text: str, tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text(text)

    assert complaints(script) == ""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_runs_on_an_image_whose_sh_is_not_bash(script: Path) -> None:
    sh = shutil.which("dash") or "sh"

    assert script.read_text().startswith("#!/bin/sh\n")
    assert subprocess.run([sh, "-n", str(script)], check=False).returncode == 0
