"""A file that is deployed: a zip archive whose bytes follow from its content alone.

The same files give the same archive on every machine: names sorted, times and owners fixed. So
its digest is its name, what has not changed is not uploaded again, and whoever pins the digest
pins the content.
"""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Aws, FileAssetPackaging, IStackSynthesizer, Stage
from constructs import Construct

#: The earliest time that a zip archive can hold.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
#: What made the archive, for the file modes to be read as such.
_UNIX = 3
_REGULAR_FILE = 0o100644 << 16
_EXECUTABLE_FILE = 0o100755 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file of an archive."""

    data: bytes
    is_executable: bool = False


def pack_members(members: Mapping[str, Member]) -> bytes:
    """Return the archive of some files, by name within it."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        for name, member in sorted(members.items()):
            info = zipfile.ZipInfo(name, date_time=_NO_TIME)
            info.create_system = _UNIX
            info.external_attr = _EXECUTABLE_FILE if member.is_executable else _REGULAR_FILE
            info.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(info, member.data)
    return archive.getvalue()


class Archive(Construct):
    """An archive, uploaded with the deployment's other assets.

    It goes to the synthesizer as it is: CDK's own file asset would name it by another digest.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        data: bytes,
        label: str,
        assets: IStackSynthesizer,
    ) -> None:
        """Add ``data``; ``label`` is what the upload's progress calls it."""
        super().__init__(scope, construct_id)
        #: SHA-256 of the archive, and its name.
        self.digest = hashlib.sha256(data).hexdigest()
        stage = Stage.of(self)
        assert stage is not None  # noqa: S101 - an app is a stage, and every stack is in one
        path = Path(stage.asset_outdir) / f"asset.{self.digest}.zip"
        path.write_bytes(data)
        place = assets.add_file_asset(
            source_hash=self.digest,
            file_name=path.name,
            packaging=FileAssetPackaging.FILE,
            display_name=label,
        )
        #: Where the archive lies, as ``s3://bucket/key``.
        self.uri = f"s3://{place.bucket_name}/{place.object_key}"
        #: The ARN of that object.
        self.arn = f"arn:{Aws.PARTITION}:s3:::{place.bucket_name}/{place.object_key}"
