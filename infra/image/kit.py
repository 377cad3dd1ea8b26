"""The kit that instances install themselves from, made from this checkout at synthesis."""

import tempfile
from pathlib import Path

from aws_cdk import IStackSynthesizer
from constructs import Construct
from hatchling.builders.wheel import WheelBuilder

from infra.archive import Archive, Member, pack_members
from spindown.contract.image import Kit, kit_files
from spindown.error import ConfigError

ROOT = Path(__file__).resolve().parents[2]


class KitArchive(Archive):
    """The kit, one for all workloads."""

    def __init__(self, scope: Construct, construct_id: str, *, assets: IStackSynthesizer) -> None:
        """Make the kit of this checkout (ConfigError: it is none)."""
        data = pack_kit(ROOT)
        super().__init__(scope, construct_id, data=data, label="Worker kit", assets=assets)

    @property
    def kit(self) -> Kit:
        """Return the kit as user data names it."""
        return Kit(uri=self.uri, sha256=self.digest)


def pack_kit(root: Path) -> bytes:
    """Return the archive of the kit: the worker's wheel, its locks, scripts and units.

    Raises:
        ConfigError: ``root`` is not a checkout, as when Spindown was installed from a wheel.
    """
    if not (root / "pyproject.toml").is_file() or not (root / "locks").is_dir():
        raise ConfigError("the worker's kit", str(root), "deploy from a checkout of Spindown")
    with tempfile.TemporaryDirectory() as directory:
        wheel = build_wheel(root, Path(directory))
        files = kit_files(root, wheel)
        return pack_members({name: Member(data=path.read_bytes()) for name, path in files.items()})


def build_wheel(root: Path, directory: Path) -> Path:
    """Build Spindown's own wheel into ``directory``: the same sources give the same bytes."""
    (made,) = WheelBuilder(str(root)).build(directory=str(directory), versions=["standard"])
    return Path(made)
