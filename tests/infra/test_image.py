"""What a workload that runs a container may do besides: pull its image, and no other."""

import pytest

from spindown.contract.run_spec import ecr_registry
from spindown.infra.iam.worker import pull_image

ECR = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    "image", [f"{ECR}/team/render:2", f"{ECR}/team/render@sha256:{'0' * 64}", f"{ECR}/team/render"]
)
def test_an_image_of_ecr_may_be_pulled_and_no_other(image: str) -> None:
    sign_in, pull = (statement.to_statement_json() for statement in pull_image(image))

    assert sign_in["Action"] == "ecr:GetAuthorizationToken"
    assert pull["Action"] == ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    assert pull["Resource"].endswith(":ecr:eu-west-1:111122223333:repository/team/render")


@pytest.mark.parametrize("image", [None, "nvcr.io/nvidia/pytorch:25.01-py3", "render:1"])
def test_an_image_of_another_registry_needs_no_grant(image: str | None) -> None:
    assert pull_image(image) == []
    assert ecr_registry(image or "") is None
