"""Where people are told of what they should fix."""

from typing import Protocol


class Topic(Protocol):
    """What carries a text to whoever has subscribed."""

    def publish(self, subject: str, text: str) -> None:
        """Tell everybody; a subject has at most 100 printable ASCII characters.

        Raises:
            NotFound: there is no such topic.
        """
        ...


class Nobody:
    """A topic without a reader, for a deployment that has none."""

    def publish(self, subject: str, text: str) -> None:
        """Do nothing."""
