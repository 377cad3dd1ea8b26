"""What turns an instance into a worker: the kit that is deployed, and the user data that uses it.

The kit is what ``worker/system/install.sh`` installs from; an image is baked with it, or an
instance fetches it at its start. User data starts the worker's units in both cases, so that an
image never works while it is being made.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from pathlib import Path

from spindown.contract import tag

#: EC2 takes no more user data than this, before base64 (EC2 User Guide, "Run commands at launch").
USER_DATA_BYTES_MAX = 16 * 1024

#: Within the kit, the script that installs it.
INSTALL = "system/install.sh"

#: What an instance may take to start its worker; large requirements take minutes.
START_WITHIN = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """A kit as it was uploaded: a zip archive of ``kit_files``."""

    #: ``s3://bucket/key``; the worker's role may read it.
    uri: str
    sha256: str
    #: Every wheel that a start needs is in it, those of the workload's requirements as well, so
    #: that no package index is asked.
    is_complete: bool = False


def kit_files(root: Path, wheel: Path) -> Mapping[str, Path]:
    """Return what a kit consists of: name within it -> file.

    Args:
        root: directory that holds ``worker`` and ``locks``.
        wheel: the wheel of Spindown itself. Others may be added beside it, below ``wheels/``;
            what is not there comes from the package index.
    """
    system = {f"system/{path.name}": path for path in (root / "worker" / "system").iterdir()}
    locks = {f"locks/{name}": root / "locks" / name for name in ("bootstrap.txt", "worker.txt")}
    return dict(sorted((system | locks | {f"wheels/{wheel.name}": wheel}).items()))


def render_user_data(kit: Kit | None, *, within: timedelta = START_WITHIN) -> str:
    """Return the user data of a worker, a shell script; CloudFormation tokens may be in the values.

    Args:
        kit: what to install; None for an image that was baked with it.
        within: an instance whose worker does not run after this time ends.
    """
    parts = ["begin.sh", "bootstrap.sh", "start.sh"] if kit else ["begin.sh", "start.sh"]
    values = {"within": str(round(within.total_seconds()))}
    if kit is not None:
        values |= {
            "code_tag": tag.CODE,
            "kit_uri": shlex.quote(kit.uri),
            "kit_sha256": shlex.quote(kit.sha256),
            "options": " --offline" if kit.is_complete else "",
        }
    text = "".join(files(__name__).joinpath(part).read_text(encoding="utf-8") for part in parts)
    return re.sub(r"@(\w+)@", lambda found: values[found[1]], text)
