"""``[workload.NAME.image]``: what an instance boots from, and which GPUs that can drive."""

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from spindown.config.form import Architecture, DeviceName, ParameterName, TomlTable, remedy

#: Parameters that the service-linked role of Image Builder may read (AWS Managed Policy Reference,
#: "AWSServiceRoleForImageBuilder").
_READ_BY_IMAGE_BUILDER = ("/aws/service/", "/imagebuilder/")

#: GPUs older than Turing: NVIDIA's open kernel modules drive none of them (NVIDIA Driver
#: Installation Guide, "Kernel Modules"), nor does AWS's image with those list their families (AWS
#: Deep Learning AMIs, release notes of "Base OSS Nvidia Driver GPU AMI").
_NEED_CLOSED_DRIVER = frozenset({"K80", "M60", "V100"})

#: AWS's images for GPUs. They drive NVIDIA's, and no part of one: G6f and Gr6f take the GRID driver
#: and no other (Amazon EC2 User Guide, "Available drivers by instance type"; with another one
#: nvidia-smi fails there, github.com/skypilot-org/skypilot/issues/6445).
_OF_AWS = "/aws/service/deeplearning/"


#: Amazon Linux 2023 (its User Guide, "Get started with AL2023 on Amazon EC2"): a tenth of the size
#: of an image with NVIDIA's drivers, which boots sooner. It has no container engine.
_WITHOUT_GPU = {
    arch: f"/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{arch}"
    for arch in ("x86_64", "arm64")
}
#: GiB that are enough for it, the worker and some work.
_ROOT_GIB_WITHOUT_GPU = 30


class ImageConfig(TomlTable):
    """``[workload.NAME.image]``: what the instance boots from."""

    #: ``bootstrap``: each instance installs the worker on the image of ``parameters``. ``auto``: so
    #: do the first ones, until they have cost as much as an image does; Image Builder then makes
    #: one (``domain.bake_or_bootstrap``). ``bake``: Image Builder does so at the deploy and once a
    #: week.
    #: ``ami``: the image of ``parameters`` has the worker already (``worker/system/install.sh``).
    mode: Literal["auto", "bootstrap", "bake", "ami"] = "auto"
    #: architecture -> SSM parameter that holds the AMI id; one of yours needs the data type
    #: ``aws:ec2:image``.
    parameters: dict[Architecture, ParameterName] = Field(
        default_factory=lambda: {
            arch: f"/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-24.04"
            "/latest/ami-id"
            for arch in ("x86_64", "arm64")
        }
    )
    #: Image Builder makes none that is larger (EC2 Image Builder API Reference,
    #: "EbsInstanceBlockDeviceSpecification").
    root_volume_gib: Annotated[int, Field(strict=True, ge=8, le=16_000)] = 100
    #: Name of the image's root device. None: what images of its family have.
    root_device: DeviceName | None = None

    @model_validator(mode="after")
    def _fit_mode(self) -> "ImageConfig":
        if self.mode == "ami" and "parameters" not in self.model_fields_set:
            raise remedy("parameters", 'for mode "ami" name the parameter of your own image')
        if self.mode == "bake" and not self._is_readable:
            below = " or ".join(_READ_BY_IMAGE_BUILDER)
            raise remedy("parameters", f'for mode "bake" name parameters below {below}')
        return self

    def without_gpu(self) -> "ImageConfig":
        """Return what machines without a GPU boot from: other defaults for what was not written."""
        defaults = {"parameters": _WITHOUT_GPU, "root_volume_gib": _ROOT_GIB_WITHOUT_GPU}
        unwritten = defaults.keys() - self.model_fields_set
        return self.model_copy(update={name: defaults[name] for name in unwritten})

    @property
    def is_baked(self) -> bool:
        """Tell whether Image Builder makes its images, at the deploy or once they are earned.

        One that Image Builder cannot start from is never baked by ``auto``.
        """
        return self.mode == "bake" or (self.mode == "auto" and self._is_readable)

    @property
    def _is_readable(self) -> bool:
        return all(one.startswith(_READ_BY_IMAGE_BUILDER) for one in self.parameters.values())

    @property
    def gpus_undriven(self) -> frozenset[str]:
        """Return the GPUs that its images have no driver for, as far as their names tell."""
        # All of them are in x86_64 machines.
        is_open = "oss-nvidia-driver" in self.parameters.get("x86_64", "")
        return _NEED_CLOSED_DRIVER if is_open else frozenset()

    @property
    def is_of_aws(self) -> bool:
        """Tell whether x86_64 machines, as all odd ones are, boot AWS's own image for GPUs."""
        return self.parameters.get("x86_64", "").startswith(_OF_AWS)

    def find_root_device(self, architecture: Architecture) -> str:
        """Return the root device of the image of ``architecture``, which its family decides."""
        is_amazon_linux = re.search(r"amazon-linux|al2023|amzn2", self.parameters[architecture])
        return self.root_device or ("/dev/xvda" if is_amazon_linux else "/dev/sda1")
