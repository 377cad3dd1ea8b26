"""The error that an AWS API answers with; how it looks on the wire is the protocol's affair."""


class ApiError(Exception):
    """An AWS error code and its text."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        """Keep the parts apart; `status` is the HTTP status."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
