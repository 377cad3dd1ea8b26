"""Make what a release consists of, from a tagged commit: ``make release``.

Into ``dist/`` go the wheel, a bill of materials (CycloneDX) of all that a deployment installs on
AWS and that the wheel pins, and the SHA-256 of both. The same commit gives the same bytes.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from spindown import __version__

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
VENV = ROOT / "build" / "release"
LOCK = ROOT / "locks" / "release.txt"
#: What the wheel brings the locks of.
_DEPLOYED = ("functions", "worker", "tables", "bootstrap")


def main() -> int:
    """Check the commit, write the files; return the exit status."""
    complaint = complain(
        status=_git("status", "--porcelain"),
        tags=_git("tag", "--points-at", "HEAD").split(),
        changelog=(ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        version=__version__,
    )
    if complaint:
        print(f"release: {complaint}", file=sys.stderr)
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    # Times in the archive are those of the commit.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct").strip()}
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(build, cwd=ROOT, env=environment, check=True)
    (wheel,) = DIST.glob("*.whl")
    bill = DIST / "sbom.cdx.json"
    bill.write_text(_bill_of_materials(wheel), encoding="utf-8")
    sums = "".join(f"{_sha256(path)}  {path.name}\n" for path in (wheel, bill))
    (DIST / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums, end="")
    return 0


def complain(*, status: str, tags: list[str], changelog: str, version: str) -> str:
    """Return why a commit is not to be released, in one sentence; "": it is.

    Args:
        status: what `git status --porcelain` says.
        tags: those of the commit.
        changelog: CHANGELOG.md.
        version: that of the package.
    """
    if status.strip():
        return "commit or remove what `git status` shows"
    if f"v{version}" not in tags:
        return f"tag this commit v{version}, or set __version__ in spindown/__init__.py"
    if not any(line.startswith(f"## {version}") for line in changelog.splitlines()):
        return f'give CHANGELOG.md a heading "## {version}", with the date'
    return ""


def _bill_of_materials(wheel: Path) -> str:
    """Return the packages that the locks pin, with their hashes, as CycloneDX."""
    if not VENV.exists():
        uv = Path(sys.executable).parent / "uv"
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, VENV], check=True)
        install: list[str | Path] = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "--python",
            VENV,
        ]
        subprocess.run([*install, "-r", LOCK], check=True)
    pinned = "\n".join((ROOT / "locks" / f"{one}.txt").read_text("utf-8") for one in _DEPLOYED)
    tell: list[str | Path] = [
        VENV / "bin" / "cyclonedx-py",
        "requirements",
        "--output-reproducible",
    ]
    done = subprocess.run(
        [*tell, "--pyproject", ROOT / "pyproject.toml", "-"],
        input=pinned,
        capture_output=True,
        text=True,
        check=True,
    )
    document = json.loads(done.stdout)
    document["metadata"]["component"] |= {
        "version": __version__,
        "hashes": [{"alg": "SHA-256", "content": _sha256(wheel)}],
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _git(*command: str) -> str:
    done = subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
