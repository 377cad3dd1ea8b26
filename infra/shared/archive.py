"""The files that are deployed: archives whose bytes follow from their content alone.

There are two kinds: the kit from which workers install themselves, and the code of a workload.

The digest of an archive is its name, an unchanged archive is not uploaded again, and whoever pins
the digest pins the content. What is deployed under one label, deploy after deploy, lies in one
folder. A role may read that folder, since instances that boot during a deploy are still launched
with the archives of the release before, and those that run may start their worker again.
"""

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from aws_cdk import Annotations, Aws, FileAssetPackaging, IStackSynthesizer, Stack, Stage
from constructs import Construct

from spindown.config import WorkloadConfig
from spindown.config.archive import check_code, pack_workload, read_version
from spindown.config.form import Architecture
from spindown.contract.image import Kit, UvBinary
from spindown.error import ConfigError
from spindown.infra.shared.pinned_uv import MACHINES, fetch_uv
from spindown.infra.shared.worker_kit import pack_kit


class Archive(Construct):
    """An archive that is uploaded with the deployment's other assets.

    It goes to the synthesizer directly: CDK's own file asset would name it by another digest.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        data: bytes,
        folder: str,
        label: str,
        assets: IStackSynthesizer,
        suffix: str = ".zip",
    ) -> None:
        """Add ``data`` to a folder of the bucket of assets; the upload calls it ``label``."""
        super().__init__(scope, construct_id)
        #: SHA-256 of the archive, and its name.
        self.digest = hashlib.sha256(data).hexdigest()
        stage = Stage.of(self)
        assert stage is not None  # noqa: S101 - an app is a stage, and every stack is in one
        # All stages of an app share a folder of assets; each has one of its own for manifests.
        path = Path(stage.asset_outdir) / f"asset.{self.digest}{suffix}"
        path.write_bytes(data)
        place = assets.add_file_asset(
            # The key is made of it, and so it may name a folder.
            source_hash=f"{folder}/{self.digest}",
            # As the manifest names it: relative to its own folder.
            file_name=os.path.relpath(path, stage.outdir),
            packaging=FileAssetPackaging.FILE,
            display_name=label,
        )
        #: Where the archive lies, as ``s3://bucket/key``.
        self.uri = f"s3://{place.bucket_name}/{place.object_key}"
        releases = place.object_key.replace(f"{self.digest}{suffix}", "*")
        #: The ARN of that object and of those that other releases have in its folder.
        self.releases_arn = f"arn:{Aws.PARTITION}:s3:::{place.bucket_name}/{releases}"


class KitArchive(Archive):
    """The kit, one for all workloads, and beside it the uv that installs from it."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        assets: IStackSynthesizer,
        architectures: Collection[Architecture] = (),
    ) -> None:
        """Add it; ``architectures``: of the instances that install it, which are given uv.

        Where CDK makes no packages, as for a stack that it does not deploy, uv is not fetched.
        """
        folder = "spindown/kit"
        super().__init__(
            scope,
            construct_id,
            data=pack_kit(),
            folder=folder,
            label="Worker kit",
            assets=assets,
        )
        is_made = Stack.of(self).bundling_required
        found = {one: fetch_uv(one) for one in sorted(architectures) if is_made}
        self._uv = {
            MACHINES[architecture]: Archive(
                self,
                f"Uv-{architecture}",
                data=data,
                folder=folder,
                label=f"uv for {architecture}",
                assets=assets,
                # Without one CDK would take the digest for it.
                suffix=".bin",
            )
            for architecture, data in found.items()
            if data is not None
        }

    @property
    def kit(self) -> Kit:
        """Return the kit's address and digest, as user data names them."""
        uv = {machine: UvBinary(one.uri, one.digest) for machine, one in self._uv.items()}
        return Kit(uri=self.uri, sha256=self.digest, uv=uv)


class CodeArchive(Archive):
    """The archive of one workload; its digest is what the manifest of a job pins."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        root: Path,
        deployment: str,
        name: str,
        workload: WorkloadConfig,
        assets: IStackSynthesizer,
    ) -> None:
        """Pack the code of ``workload``; its path is relative to ``root`` (raises ConfigError)."""
        data = pack_workload(root, name, workload)
        super().__init__(
            scope,
            construct_id,
            data=data,
            folder=f"spindown/code/{deployment}/{name}",
            label=f"Code of {name}",
            assets=assets,
        )
        try:
            check_code(root, {name: workload})
        except ConfigError as exc:
            # An error would end a destroy too, for which nobody needs code that can run.
            Annotations.of(self).add_warning_v2("spindown:code", str(exc))
        #: ``RunSpec.version`` of what is in it.
        self.version = read_version(data)
        #: The digest if the code has requirements that an image must hold, else None.
        self.requirements_digest = self.digest if workload.run.requirements else None
