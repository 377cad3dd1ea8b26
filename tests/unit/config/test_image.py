"""What an instance boots from, as spindown.toml says it."""

from typing import Any

import pytest

from spindown import config
from spindown.config.form import Architecture
from spindown.config.image import ImageConfig
from spindown.error import ConfigError

UBUNTU = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)
AMAZON = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest"


def parse_image(image: dict[str, Any], *architectures: Architecture) -> ImageConfig:
    workload = {
        "run": {"entrypoint": "ocr:run", "code": "code"},
        "requirements": {"architectures": architectures or ["x86_64"]},
        "image": image,
    }
    deployment = {"name": "demo", "region": "us-east-1", "zones": ["us-east-1a"]}
    return (
        config.parse({"deployment": deployment, "workload": {"ocr": workload}})
        .workloads["ocr"]
        .image
    )


def test_a_first_deploy_needs_no_image_of_its_own() -> None:
    image = parse_image({}, "x86_64", "arm64")

    assert image.mode == "bootstrap"
    assert image.parameters["x86_64"] == UBUNTU
    assert set(image.parameters) == {"x86_64", "arm64"}


@pytest.mark.parametrize(
    ("image", "field", "remedy"),
    [
        pytest.param(
            {"mode": "docker"},
            "mode",
            "write one of 'bootstrap', 'bake' or 'ami'",
            id="a mode that is none",
        ),
        pytest.param(
            {"mode": "ami"},
            "parameters",
            'for mode "ami" name the parameter of your own image',
            id="an own image that is not named",
        ),
        pytest.param(
            {"mode": "bake", "parameters": {"x86_64": "/my/base"}},
            "parameters",
            'for mode "bake" name parameters below /aws/service/ or /imagebuilder/',
            id="a base that Image Builder may not look up",
        ),
        pytest.param(
            {"parameters": {"arm64": UBUNTU}},
            "parameters",
            "name one for x86_64 as well",
            id="no image for an architecture",
        ),
        pytest.param(
            {"parameters": {"x86_64": "ami-0123"}},
            "parameters.x86_64",
            "write an SSM parameter of the form /path/of/parameter",
            id="an image id in place of a parameter",
        ),
        pytest.param(
            {"root_volume_gib": 16_001},
            "root_volume_gib",
            "make it at most 16000",
            id="a volume that Image Builder does not make",
        ),
        pytest.param(
            {"root_device": "sda1"},
            "root_device",
            "write a device of the form /dev/sda1",
            id="no device",
        ),
    ],
)
def test_names_the_key_and_the_remedy(image: dict[str, Any], field: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_image(image)

    assert (caught.value.field, caught.value.remedy) == (f"workload.ocr.image.{field}", remedy)


@pytest.mark.parametrize(
    ("parameter", "device"),
    [(UBUNTU, "/dev/sda1"), (AMAZON, "/dev/xvda"), ("/images/al2023", "/dev/xvda")],
    ids=["Ubuntu", "Amazon Linux", "by its short name"],
)
def test_the_root_device_follows_from_the_family(parameter: str, device: str) -> None:
    image = parse_image({"parameters": {"x86_64": parameter}})

    assert image.find_root_device("x86_64") == device


def test_the_root_device_can_be_said() -> None:
    image = parse_image({"root_device": "/dev/xvdb"})

    assert image.find_root_device("x86_64") == "/dev/xvdb"
