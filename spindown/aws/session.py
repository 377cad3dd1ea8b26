"""Clients without boto3, whose import takes a function a seventh of its start.

boto3 adds resources and managed transfers to what botocore does, and imports the code of both
before its first client. The functions use neither.
"""

from typing import Any

from botocore.config import Config
from botocore.session import Session


class CoreSession:
    """What ports need of boto3's Session, on botocore alone; its S3 client transfers no files."""

    def __init__(self) -> None:
        self._session = Session()

    @property
    def region_name(self) -> str | None:
        """Return the region of the standard AWS configuration."""
        region: str | None = self._session.get_config_variable("region")
        return region

    def client(
        self, service: str, *, region_name: str | None = None, config: Config | None = None
    ) -> Any:
        """Make a client of a service, in the session's own region if none is given."""
        return self._session.create_client(service, region_name=region_name, config=config)
