"""Change the core in small ways, one at a time, and see whether the tests notice.

`make mutate` takes a share of all mutants of `spindown/domain` and `spindown/job`, `make
mutate ARGS="--digits 0123456789"` all of them (hours). mutmut makes and runs them, in a virtual
environment of its own beside the project's and on a copy of the tracked files, so that nothing
here is touched. What it found goes to docs/proof/mutation.json, under what was changed. Why a
survivor may live stands in docs/proof/survivors.toml, by its function and by what was changed in
it; one without a reason fails.

`--again`, once tests were added: only mutants that lived and those of functions that have changed
since are run; what another was found to be by the last run of the same copy stands.
"""

import argparse
import ast
import difflib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "mutation"
PROJECT = FOLDER / "project"
VENV = FOLDER / "venv"
REPORT = ROOT / "docs" / "proof" / "mutation.json"
LOCK = ROOT / "locks" / "mutation.txt"
REASONS = ROOT / "docs" / "proof" / "survivors.toml"

CORE = ("spindown/domain", "spindown/job")
TESTS = (
    "tests/unit/domain",
    "tests/unit/control",
    "tests/unit/job",
    "tests/worker/slot",
    "tests/proof/test_worker_crash.py",
)

#: Folders to which links in ``spindown`` lead.
_LINKED = ("functions", "infra", "locks", "worker")

_CONFIG = """
[tool.mutmut]
source_paths = ["spindown"]
only_mutate = {only}
also_copy = ["tools"]
pytest_add_cli_args = ["-p", "no:cacheprovider", "-p", "no:xdist"]
pytest_add_cli_args_test_selection = {tests}
use_git_change_detection = false
"""

#: mutmut's exit codes of one mutant; whatever else there is counts as killed by a crash.
_OUTCOMES = {0: "survived", 1: "killed", 3: "killed", 5: "untested", 33: "untested"}
_TIMEOUTS = {-24, 24, 36, 152, 255}


def main() -> None:
    """Make mutants, run the tests on them, write down what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--digits", default="3", help="mutants whose number ends in one of these")
    parser.add_argument("--paths", nargs="+", default=CORE, help="what to change")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="what must notice")
    parser.add_argument("--seconds", type=float, default=1800.0, help="give up after so long")
    parser.add_argument("--children", type=int, default=2, help="processes at once")
    parser.add_argument("--again", action="store_true", help="only what has lived, of all digits")
    chosen = parser.parse_args()
    if chosen.again:
        chosen.digits = "0123456789"
    _make_venv()
    _make_project(chosen.paths, chosen.tests, again=chosen.again)
    prefixes = [path.removesuffix(".py").replace("/", ".") for path in chosen.paths]
    # Without names mutmut runs what has no outcome yet.
    digits = "" if chosen.again else chosen.digits
    names = [f"{prefix}.*{digit}" for prefix in prefixes for digit in digits]
    mutmut = str(VENV / "bin" / "mutmut")
    command = [mutmut, "run", "--max-children", str(chosen.children), *names]
    is_whole = True
    try:
        done = subprocess.run(command, cwd=PROJECT, check=False, timeout=chosen.seconds)
        if done.returncode not in {0, 1}:
            sys.exit(f"mutmut ended with {done.returncode}")
    except subprocess.TimeoutExpired:
        is_whole = False
    unexplained = _report(chosen.paths, chosen.digits, is_whole=is_whole)
    if unexplained:
        sys.exit(f"{unexplained} mutants live without a reason: kill them, or say why in {REASONS}")


def _make_venv() -> None:
    """Make mutmut's environment; it sees the project's dependencies behind its own."""
    stamp = VENV / "stamp"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == LOCK.read_text(encoding="utf-8"):
        return
    shutil.rmtree(VENV, ignore_errors=True)
    uv = Path(sys.executable).parent / "uv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, VENV], check=True)
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--require-hashes", "--python", VENV, "-r", LOCK],
        check=True,
    )
    (packages,) = VENV.glob("lib/python*/site-packages")
    (ours,) = Path(sys.prefix).glob("lib/python*/site-packages")
    (packages / "spindown.pth").write_text(f"{ours}\n", encoding="utf-8")
    stamp.write_text(LOCK.read_text(encoding="utf-8"), encoding="utf-8")


def _make_project(paths: Sequence[str], tests: Sequence[str], *, again: bool) -> None:
    """Copy the tracked files, as they are now, with mutmut's settings."""
    known = _known() if again else {}
    shutil.rmtree(PROJECT, ignore_errors=True)
    for path, text in known.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "spindown", *_LINKED, "tests", "tools"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            # mutmut follows no links, so what they lead to is copied to where they are.
            place = PROJECT / ("spindown" if name.split("/")[0] in _LINKED else "") / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place)
    only = [path if path.endswith(".py") else f"{path}/*" for path in paths]
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    settings += _CONFIG.format(only=json.dumps(only), tests=json.dumps(list(tests)))
    (PROJECT / "pyproject.toml").write_text(settings, encoding="utf-8")


def _known() -> dict[Path, str]:
    """Return what mutmut keeps of the last run, without the outcomes of mutants that lived."""
    kept = {}
    for path in (PROJECT / "mutants").rglob("*.py.meta"):
        found = json.loads(path.read_text(encoding="utf-8"))
        codes = found["exit_code_by_key"]
        killed = {name: code for name, code in codes.items() if _outcome_of(code) == "killed"}
        # mutmut itself drops those of functions that are not what they were.
        found["exit_code_by_key"] = {name: killed.get(name) for name in codes}
        kept[path] = json.dumps(found)
    return kept


def _report(paths: Sequence[str], digits: str, *, is_whole: bool) -> int:
    """Write the report; return how many mutants live for no known reason."""
    modules: dict[str, Counter[str]] = {}
    alive: dict[str, dict[str, str]] = {"explained": {}, "unexplained": {}}
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))["survivor"]
    for module, mutant, code in _outcomes():
        # After a run of another part its outcomes lie there too.
        if mutant[-1] not in digits or not module.startswith(tuple(paths)):
            continue
        outcome = _outcome_of(code)
        modules.setdefault(module, Counter())[outcome] += 1
        if outcome in {"survived", "untested"}:
            change = _change(module, mutant)
            reason = _reason(module, mutant, change, reasons)
            alive["unexplained" if reason is None else "explained"][mutant] = reason or change
    total: Counter[str] = sum(modules.values(), Counter())
    figures: dict[str, Any] = {
        "numbers_ending_in": digits,
        "is_whole": is_whole and not total["not run"],
        "total": dict(sorted(total.items())),
        "explained": len(alive["explained"]),
        "unexplained": len(alive["unexplained"]),
        "modules": {name: dict(sorted(found.items())) for name, found in sorted(modules.items())},
        "alive": {kind: dict(sorted(found.items())) for kind, found in alive.items()},
    }
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(REPORT.read_text(encoding="utf-8")) if REPORT.exists() else {}
    known = {part: run for part, run in known.items() if _is_there(part)}
    text = json.dumps({**known, " ".join(paths): figures}, indent=2, ensure_ascii=False)
    REPORT.write_text(text + "\n", encoding="utf-8")
    print(json.dumps(figures["total"]))
    return len(alive["unexplained"])


def _is_there(part: str) -> bool:
    """Tell whether every path of a part that was run is still there."""
    return all((ROOT / path).exists() for path in part.split())


def _function_of(mutant: str) -> str:
    """Return the function, with its class, that a mutant is one of."""
    name = mutant.rpartition(".")[2].partition("__mutmut_")[0]
    # mutmut writes x_name for a function and xǁClassǁname for a method.
    return ".".join(name.removeprefix("x").strip("ǁ").split("ǁ")) if "ǁ" in name else name[2:]


def _change(module: str, mutant: str) -> str:
    """Return the lines that a mutant lacks and has, as "- before + after"."""
    text = (PROJECT / "mutants" / module).read_text(encoding="utf-8")
    name = mutant.rpartition(".")[2]
    original = re.sub(r"__mutmut_\d+$", "__mutmut_orig", name)
    found = {
        node.name: (ast.get_source_segment(text, node) or "").replace(node.name, "").splitlines()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name in {name, original}
    }
    lines = difflib.unified_diff(found.get(original, []), found.get(name, []), n=0, lineterm="")
    return " ".join(f"{line[0]} {line[1:].strip()}" for line in list(lines)[2:] if line[0] in "+-")


def _reason(
    module: str, mutant: str, change: str, reasons: Sequence[Mapping[str, str]]
) -> str | None:
    """Return why a mutant may live; None if nobody has said so."""
    place = f"{module}:{_function_of(mutant)}"
    for known in reasons:
        if re.fullmatch(known["where"], place) and re.search(known["change"], change):
            return known["reason"]
    return None


def _outcomes() -> Iterator[tuple[str, str, int | None]]:
    """Yield module, name and exit code of every mutant."""
    mutants = PROJECT / "mutants"
    for path in sorted(mutants.rglob("*.py.meta")):
        module = path.relative_to(mutants).as_posix().removesuffix(".meta")
        codes = json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
        for mutant, code in codes.items():
            yield module, mutant, code


def _outcome_of(code: int | None) -> str:
    if code is None:
        return "not run"
    return "timeout" if code in _TIMEOUTS else _OUTCOMES.get(code, "killed")


if __name__ == "__main__":
    main()
