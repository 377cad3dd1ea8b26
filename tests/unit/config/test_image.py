"""What an instance boots from, as spindown.toml says it."""

from typing import Any

import pytest

from spindown import config
from spindown.config import WorkloadConfig
from spindown.config.form import Architecture
from spindown.config.image import ImageConfig
from spindown.error import ConfigError

UBUNTU = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)
AMAZON = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest"


def parse_workload(
    image: dict[str, Any], requirements: dict[str, Any], run: dict[str, Any] | None = None
) -> WorkloadConfig:
    workload = {
        "run": run or {"entrypoint": "ocr:run", "code": "code"},
        "requirements": requirements,
        "image": image,
    }
    deployment = {"name": "demo", "region": "us-east-1", "zones": ["us-east-1a"]}
    parsed = config.parse({"deployment": deployment, "workload": {"ocr": workload}})
    return parsed.workloads["ocr"]


def parse_image(image: dict[str, Any], *architectures: Architecture) -> ImageConfig:
    return parse_workload(image, {"architectures": architectures or ["x86_64"]}).image


def test_a_first_deploy_needs_no_image_of_its_own() -> None:
    image = parse_image({}, "x86_64", "arm64")

    assert image.mode == "auto"
    assert image.parameters["x86_64"] == UBUNTU
    assert set(image.parameters) == {"x86_64", "arm64"}


NONE = {"gpu_count_min": 0}
AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{}"


@pytest.mark.parametrize(
    ("requirements", "most", "image"),
    [
        pytest.param(NONE, 0.0, AL2023, id="no GPU"),
        pytest.param(NONE | {"gpu_count_max": 0}, 0.0, AL2023, id="no GPU at all"),
        pytest.param(NONE | {"vcpus_min": 8}, 0.0, AL2023, id="and vCPUs"),
        pytest.param(NONE | {"gpu_names": ["T4"]}, None, "nvidia", id="a GPU may do"),
        pytest.param(NONE | {"gpu_count_max": 2}, 2.0, "nvidia", id="two may do"),
        pytest.param({}, None, "nvidia", id="a GPU"),
    ],
)
def test_machines_without_a_gpu_boot_a_small_image(
    requirements: dict[str, Any], most: float | None, image: str
) -> None:
    both = {"architectures": ["x86_64", "arm64"], **requirements}

    found = parse_workload({}, both)

    assert found.to_requirements().gpu_count_max == most
    for architecture, parameter in found.image.parameters.items():
        assert image.format(architecture) in parameter
    is_small = most == 0.0
    assert found.image.root_volume_gib == (30 if is_small else 100)
    assert found.image.find_root_device("arm64") == ("/dev/xvda" if is_small else "/dev/sda1")


def test_what_is_written_of_an_image_stays() -> None:
    own = {"mode": "bake", "root_volume_gib": 12, "parameters": {"x86_64": "/aws/service/own"}}

    found = parse_workload(own, NONE).image

    assert (found.mode, found.root_volume_gib) == ("bake", 12)
    assert found.parameters == own["parameters"]


def test_containers_without_a_gpu_get_an_image_with_an_engine() -> None:
    container = {"image": f"registry/name@sha256:{'0' * 64}"}

    found = parse_workload({}, NONE, container)

    assert found.image.parameters["x86_64"] == UBUNTU


def test_no_container_is_run_on_neuron() -> None:
    own = {"parameters": {"x86_64": "/aws/service/neuron/own"}}
    container = {"image": f"registry/name@sha256:{'0' * 64}"}

    with pytest.raises(ConfigError) as raised:
        parse_workload(own, {"gpu_manufacturer": "AWS"}, container)

    assert raised.value.field == "workload.ocr.run.image"


@pytest.mark.parametrize(
    "requirements",
    [{"gpu_names": ["Inferentia2"]}, {"instance_types": ["trn1.2xlarge"]}],
)
def test_neuron_is_bought_where_it_is_named(requirements: dict[str, Any]) -> None:
    neuron = "/aws/service/neuron/dlami/multi-framework/ubuntu-24.04/latest/image_id"

    found = parse_workload({"parameters": {"x86_64": neuron}}, requirements)

    assert found.to_requirements().gpu_manufacturer is None


@pytest.mark.parametrize(
    ("image", "field", "remedy"),
    [
        pytest.param(
            {"mode": "docker"},
            "mode",
            "write one of 'auto', 'bootstrap', 'bake' or 'ami'",
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
