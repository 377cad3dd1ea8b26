"""Which stacks of CloudFormation there are."""

from collections.abc import Callable, Sequence
from typing import Any

from spindown.aws.error import translated
from spindown.error import NotFound

#: What DescribeStacks answers where no stack has the name (AWS CloudFormation API Reference).
_NO_STACK = {"ValidationError": NotFound}


class CloudFormationStacks:
    """The stacks of one region."""

    def __init__(self, make_client: Callable[[], Any]) -> None:
        """Take what makes the client."""
        self._make_client = make_client

    def find(self, names: Sequence[str]) -> list[str]:
        """Return those of the names that a stack has."""
        return [name for name in names if self._has(name)]

    def _has(self, name: str) -> bool:
        try:
            with translated(_NO_STACK):
                self._make_client().describe_stacks(StackName=name)
        except NotFound:
            return False
        return True
