"""Sessions that make clients for one purpose: a quick start, or many requests.

boto3 adds resources and managed transfers to what botocore does, and imports the code of both
before its first client, which takes a function a seventh of its start. The functions use
neither; a worker moves files.
"""

from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.handlers import add_expect_header
from botocore.session import Session

from spindown import __version__

if TYPE_CHECKING:
    import boto3

#: What a request says it comes from. botocore's own description of the process is put together
#: anew for each request, from 42 parts: a fifth of all calls that a request makes.
USER_AGENT = f"spindown/{__version__}"


class CoreSession:
    """What ports need of boto3's Session, on botocore alone; its S3 client transfers no files."""

    def __init__(self) -> None:
        self._session = Session()
        self._session.set_default_client_config(Config(user_agent=USER_AGENT))

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


def steady_session(region: str) -> "boto3.Session":
    """Return boto3's session for a process that makes the same few requests all its life.

    Their parameters are not validated before each, which takes 4 % of a request's CPU; the
    suites over the adapters run with validation. Nor does a write to S3 first ask whether to go
    on (``Expect: 100-continue``), which takes a journey more for each small object.
    """
    import boto3  # noqa: PLC0415 - the functions, which import this module, do without it

    core = Session()
    core.set_default_client_config(Config(parameter_validation=False, user_agent=USER_AGENT))
    core.unregister("before-call.s3", add_expect_header)  # type: ignore[arg-type]  # its own handler
    return boto3.Session(botocore_session=core, region_name=region)
