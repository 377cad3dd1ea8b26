"""EC2 Image Builder in memory."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from spindown.error import NotFound
from spindown.port import ImageBuild


class MemoryImageBuilder:
    """ImageBuilder in memory: builds end when a test says so."""

    def __init__(self, pipelines: Collection[str]) -> None:
        """Take the names of the pipelines that there are."""
        self._pipelines = frozenset(pipelines)
        self._by_token: dict[str, str] = {}
        #: Name -> build, oldest first.
        self.builds: dict[str, ImageBuild] = {}

    def start(self, pipeline: str, *, token: str) -> str:
        """Start a build, once for each token."""
        if pipeline not in self._pipelines:
            message = f"there is no pipeline {pipeline}"
            raise NotFound(message)
        if token not in self._by_token:
            name = f"{pipeline}/build-{len(self.builds) + 1}"
            self._by_token[token] = name
            self.builds[name] = ImageBuild(state="PENDING")
        return self._by_token[token]

    def read(self, build: str) -> ImageBuild:
        """Return how a build stands."""
        if build not in self.builds:
            message = f"there is no image {build}"
            raise NotFound(message)
        return self.builds[build]

    def finish(self, build: str, images: Mapping[str, str], *, stamp: str = "") -> None:
        """Let a build end with images."""
        made = replace(self.builds[build], state="AVAILABLE", images=images, stamp=stamp)
        self.builds[build] = made

    def fail(self, build: str, said: str) -> None:
        """Let a build end without an image."""
        self.builds[build] = replace(self.builds[build], state="FAILED", has_failed=True, said=said)
