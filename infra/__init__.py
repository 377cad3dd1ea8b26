"""The CDK app that deploys Spindown, and the construct for apps of others."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spindown.infra.construct import Deployment

__all__ = ["Deployment"]


def __getattr__(name: str) -> Any:
    """Load the construct where it is asked for: with it comes CDK, which takes seconds."""
    if name != "Deployment":
        raise AttributeError(name)
    from spindown.infra.construct import Deployment  # noqa: PLC0415

    return Deployment
