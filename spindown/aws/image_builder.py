"""Images: pipelines of EC2 Image Builder."""

from collections.abc import Callable
from typing import Any

from spindown.aws.error import translated
from spindown.contract.image import STAMP_TAG
from spindown.port import ImageBuild

#: States in which a build is over (EC2 Image Builder API Reference, "ImageState").
_AVAILABLE = "AVAILABLE"
_FAILED = frozenset({"CANCELLED", "DELETED", "DEPRECATED", "DISABLED", "FAILED"})


class AwsImageBuilder:
    """ImageBuilder on EC2 Image Builder; boto3's stubs leave this service out."""

    def __init__(self, make_client: Callable[[], Any]) -> None:
        """Take what makes the client, since few workloads have images baked."""
        self._make_client = make_client

    def start(self, pipeline: str, *, token: str) -> str:
        """Start a build, once for each token; return the ARN of the image that it makes."""
        with translated():
            answer = self._make_client().start_image_pipeline_execution(
                imagePipelineArn=pipeline, clientToken=token
            )
        return str(answer["imageBuildVersionArn"])

    def read(self, build: str) -> ImageBuild:
        """Return how a build stands."""
        with translated():
            image = self._make_client().get_image(imageBuildVersionArn=build)["image"]
        state = image["state"]
        status = str(state["status"])
        made = image.get("outputResources", {}).get("amis", []) if status == _AVAILABLE else []
        return ImageBuild(
            state=status,
            images={each["region"]: each["image"] for each in made},
            has_failed=status in _FAILED,
            said=state.get("reason", ""),
            stamp=image.get("tags", {}).get(STAMP_TAG, ""),
        )
