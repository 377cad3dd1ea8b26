"""People are told through SNS."""

from collections.abc import Callable
from typing import Protocol

from spindown.aws.error import translated


class _Client(Protocol):
    # The names are those of the API.
    def publish(self, *, TopicArn: str, Subject: str, Message: str) -> object:  # noqa: N803
        ...


class SnsTopic:
    """Topic on SNS; its client is made at the first use, which is rare."""

    def __init__(self, client: Callable[[], _Client], arn: str) -> None:
        self._client = client
        self._arn = arn

    def publish(self, subject: str, text: str) -> None:
        """Tell everybody who has subscribed (raises NotFound)."""
        with translated():
            self._client().publish(TopicArn=self._arn, Subject=subject, Message=text)
