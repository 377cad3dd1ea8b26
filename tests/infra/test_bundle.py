"""The functions' package: made once for Lambda and once for this machine, without Docker."""

import ast
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindown.infra.control.bundle import (
    CALLED,
    LOCK,
    PARTS,
    TABLE_LOCK,
    FunctionBundle,
    Target,
    compile_sources,
    digest,
    make_bundle,
    python_of_lambda,
    trim,
)
from spindown.infra.shared.pinned_uv import say_cause
from spindown.infra.shared.worker_kit import PACKAGE, WORKER_PARTS, files_of

MIB = 1024 * 1024

#: ELF: the file's machine at byte 18, 183 for 64-bit Arm (ELF-64 Object File Format, e_machine).
ARM_64 = 183

#: What every function does at its start.
MAKE_CLIENTS = """
import sys
sys.path.insert(0, sys.argv[1])
import boto3
from spindown.functions import interruption, offers, scaler
session = boto3.Session("key", "secret", region_name="us-east-1")
for service in sys.argv[2:]:
    session.client(service)
"""


def imported(source: str) -> Iterator[str]:
    """Yield the parts of Spindown that this source imports, in functions too."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and "not on instances" in lines[node.lineno - 1]:
            continue
        match node:
            case ast.ImportFrom(module="spindown"):
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield from module.split(".")[1:2] if module.startswith("spindown.") else ()
            case ast.Import():
                names = [alias.name.split(".") for alias in node.names]
                yield from (name[1] for name in names if name[0] == "spindown" and len(name) > 1)


@pytest.mark.parametrize("parts", [PARTS, WORKER_PARTS], ids=["functions", "worker"])
def test_all_that_a_package_ever_imports_is_in_it(parts: tuple[str, ...]) -> None:
    sources = [path for path in files_of(parts) if path.suffix == ".py"]
    wanted = {part for path in sources for part in imported(path.read_text())}

    assert len(wanted) > len(parts) / 2
    assert wanted - {"__version__"} <= {part.split("/")[0].removesuffix(".py") for part in parts}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("package")
    make_bundle(directory, Target.LAMBDA)
    return directory


def test_binaries_are_for_the_python_and_processor_of_lambda(package: Path) -> None:
    compiled = list(package.rglob("*.so"))

    assert compiled
    for library in compiled:
        assert library.name.endswith(".cpython-314-aarch64-linux-gnu.so")
        assert int.from_bytes(library.read_bytes()[18:20], "little") == ARM_64


def test_the_package_is_far_below_what_lambda_takes(package: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in package.rglob("*"):
            archive.write(path, path.relative_to(package))

    assert len(packed.getvalue()) < 8 * MIB


def test_the_package_holds_only_the_code_that_functions_run(package: Path) -> None:
    assert (package / "spindown" / "functions" / "__init__.py").is_file()
    assert (package / "spindown" / "aws" / "wiring.py").is_file()
    for absent in ("cli", "ec2sim", "local", "memory"):
        assert not (package / "spindown" / absent).exists()


def test_only_the_maker_of_tables_carries_duckdb(package: Path, tmp_path: Path) -> None:
    make_bundle(tmp_path, Target.LAMBDA, (LOCK, TABLE_LOCK))

    # Lambda takes 250 MiB unpacked (AWS Lambda quotas).
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 150 * MIB
    assert (tmp_path / "duckdb").is_dir()
    assert not (package / "duckdb").exists()


def test_bytecode_is_used_without_a_look_at_its_source(tmp_path: Path) -> None:
    module = tmp_path / "answer.py"
    module.write_text("print('compiled')")
    assert compile_sources(tmp_path, [sys.executable]) == ""
    module.write_text("print('from source')")
    command = [sys.executable, "-B", "-c", "import answer"]

    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)

    assert done.stdout == "compiled\n"


WHO = "me:pass"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            (
                "error: Request failed after 3 retries in 4.4s\n  cause: Failed to download "
                "`https://github.com/astral-sh/x.tar.gz`\n  cause: client error (Connect)\n"
                "  cause: Connection refused (os error 111)\n"
            ),
            "github.com: Connection refused (os error 111)",
        ),
        (
            "error: Failed to fetch: `https://mirror:8443/a`\n  Caused by: dns error\n",
            "mirror:8443: dns error",
        ),
        (
            (
                "warning: read https://docs.example/help\nerror: Failed to fetch: "
                f"`https://{WHO}@mirror/a`\n  Caused by: 401 Unauthorized\n"
                "hint: set credentials, see https://docs.example/auth\n"
            ),
            "mirror: 401 Unauthorized",
        ),
        (f"no access to https://{WHO}@mirror/a\n", "no access to https://mirror/a"),
        ("error: No interpreter found\n  for Python 3.14\n", "error: No interpreter found for"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_cause_of_a_failed_download_has_its_host(said: str, told: str) -> None:
    assert say_cause(said).startswith(told)
    assert len(say_cause(said)) < 350


def test_who_has_no_python_of_lambda_is_told_why_it_is_slower(tmp_path: Path) -> None:
    (tmp_path / "answer.py").write_text("print('from source')")
    refuse = [sys.executable, "-c", "raise SystemExit('no interpreter')"]
    die = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]

    said = [compile_sources(tmp_path, one) for one in (refuse, [str(tmp_path / "none")], die)]

    assert said[0] == "no interpreter"
    assert "none" in said[1]
    assert "-9" in said[2]
    assert not list(tmp_path.rglob("*.pyc"))


def test_only_lambdas_own_python_compiles_by_itself() -> None:
    assert python_of_lambda((3, 14)) == [sys.executable]
    assert python_of_lambda((3, 13))[-4:] == ["--python", "3.14", "--", "python"]


def test_the_package_for_this_machine_makes_every_client(tmp_path: Path) -> None:
    make_bundle(tmp_path, Target.HOST)
    # Isolated and without site-packages: what is not in the package is not there.
    command = [sys.executable, "-I", "-S", "-c", MAKE_CLIENTS, str(tmp_path), *CALLED]

    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_is_open_to_no_more_people_than_its_parts(tmp_path: Path) -> None:
    # As CDK does before it asks for the package.
    tmp_path.chmod(0o777)

    assert FunctionBundle(Target.HOST).try_bundle(str(tmp_path))

    assert tmp_path.stat().st_mode == (tmp_path / "spindown").stat().st_mode


def test_an_unchanged_package_keeps_its_name_for_each_target() -> None:
    assert digest(Target.LAMBDA) == digest(Target.LAMBDA)
    assert digest(Target.LAMBDA) != digest(Target.HOST)
    assert digest(Target.LAMBDA) != digest(Target.LAMBDA, (LOCK, TABLE_LOCK))


def test_the_name_of_a_package_is_the_same_whoever_deploys() -> None:
    names = {
        target: {digest(target, python=version) for version in ("3.11.7", "3.14.2")}
        for target in Target
    }

    assert len(names[Target.LAMBDA]) == 1
    # Wheels for this machine are those of this Python.
    assert len(names[Target.HOST]) == 2


def test_what_goes_into_the_package_is_source_alone() -> None:
    names = [str(path.relative_to(PACKAGE)) for path in files_of(PARTS)]

    assert "functions/scaler.py" in names
    assert "error.py" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


MODEL: dict[str, Any] = {
    "metadata": {"apiVersion": "1"},
    "documentation": "for people",
    "operations": {
        "Tell": {"input": {"shape": "TellRequest"}, "documentation": "for people"},
        "Ask": {"input": {"shape": "AskRequest"}, "errors": [{"shape": "Busy"}]},
    },
    "shapes": {
        "TellRequest": {"type": "structure", "members": {}},
        "AskRequest": {
            "type": "structure",
            "members": {
                "documentation": {"shape": "Text", "documentation": "for people"},
                "again": {"shape": "AskRequest"},
            },
        },
        "Text": {"type": "string", "documentation": "for people"},
        "Busy": {"type": "structure", "members": {}},
    },
}


def test_a_trimmed_model_has_exactly_what_its_operations_need() -> None:
    trimmed = trim(MODEL, ["Ask"])

    assert set(trimmed["operations"]) == {"Ask"}
    assert set(trimmed["shapes"]) == {"AskRequest", "Busy", "Text"}
    assert trimmed["shapes"]["AskRequest"]["members"]["documentation"] == {"shape": "Text"}
    assert "for people" not in str(trimmed)
    assert trimmed["metadata"] == MODEL["metadata"]


def test_a_model_without_a_list_of_operations_keeps_them_all() -> None:
    assert set(trim(MODEL, ())["operations"]) == {"Ask", "Tell"}
