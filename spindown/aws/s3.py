"""The deployment's bucket, and the inputs that a workload may read, on S3.

If an answer is lost, botocore repeats a conditional put. The repeat may find its own first write
and fail with 412. The caller recognises its write by a nonce in it, or by its content.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from spindown.aws.error import code_of, translated
from spindown.contract.location import Location, check_declared, check_listed
from spindown.error import (
    PreconditionFailed,
    SpindownError,
    Unreachable,
    Unreadable,
    too_large,
)
from spindown.port import Absent, Matches, ObjectSummary, StoredObject

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef, ObjectTypeDef

#: S3 answers If-Match on a key without an object with 404.
_GONE: Mapping[str, type[SpindownError]] = {"NoSuchKey": PreconditionFailed}

#: What cannot be read today or tomorrow, as if it were denied: an archived object that nobody has
#: restored, and what is encrypted with a key that is off or gone. Taken for a fault of S3, it would
#: be tried for half a day, a machine each time (Amazon S3 API Reference, "Error responses").
_UNREADABLE: Mapping[str, type[SpindownError]] = dict.fromkeys(
    (
        "InvalidObjectState",
        # Encrypted with a key that its owner sends along and S3 does not keep (SSE-C).
        "InvalidRequest",
        "KMS.DisabledException",
        "KMS.InvalidKeyUsageException",
        "KMS.KMSInvalidStateException",
        "KMS.NotFoundException",
    ),
    Unreadable,
)
#: And the other way round: what is wrong with our credentials or our clock is no fault of an input.
_OF_INPUTS: Mapping[str, type[SpindownError]] = {
    **_UNREADABLE,
    **dict.fromkeys(
        (
            "ExpiredToken",
            "InvalidAccessKeyId",
            "InvalidToken",
            "RequestExpired",
            "RequestTimeTooSkewed",
            "SignatureDoesNotMatch",
        ),
        Unreachable,
    ),
}

#: A transfer begins with a HEAD. Its refusal has no body that tells why; that of a GET has.
_BARE = frozenset({"400", "403"})


class S3ObjectStore:
    """ObjectStore on one versioned S3 bucket, or on the part of it below ``root``."""

    def __init__(self, client: "S3Client", bucket: str, root: str = "") -> None:
        """Serve the keys below ``root``; callers see keys without it."""
        self._client = client
        self._bucket = bucket
        self._root = root

    def get(
        self, key: str, *, version: str | None = None, at_most_bytes: int | None = None
    ) -> StoredObject:
        """Read an object, or one of its older versions."""
        which: dict[str, Any] = {} if version is None else {"VersionId": version}
        with translated(_UNREADABLE):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._root + key, **which)
            return StoredObject(
                data=_read(answer, key, at_most_bytes),
                etag=answer["ETag"],
                version=answer.get("VersionId", "null"),
                modified_at=answer["LastModified"],
            )

    def put(self, key: str, data: bytes, *, condition: Absent | Matches | None = None) -> str:
        """Write an object if the condition holds, return its ETag."""
        which: dict[str, Any] = {}
        if isinstance(condition, Absent):
            which = {"IfNoneMatch": "*"}
        elif isinstance(condition, Matches):
            which = {"IfMatch": condition.etag}
        try:
            with translated(_GONE if isinstance(condition, Matches) else None):
                answer = self._client.put_object(
                    Bucket=self._bucket, Key=self._root + key, Body=data, **which
                )
        except PreconditionFailed as exc:
            raise PreconditionFailed(*exc.args, may_be_own=_was_repeated(exc)) from exc
        return answer["ETag"]

    def put_file(self, key: str, path: Path) -> None:
        """Upload a file, in parts if it is large."""
        with path.open("rb") as file, _transferring():
            self._client.upload_fileobj(file, self._bucket, self._root + key)

    def get_file(self, key: str, path: Path) -> None:
        """Download an object; the file appears only when it is whole."""
        with _transferring():
            self._client.download_file(self._bucket, self._root + key, str(path))

    def list(self, prefix: str) -> Iterator[ObjectSummary]:
        """List objects under a prefix in key order."""
        for found in _list(self._client, self._bucket, self._root + prefix):
            yield ObjectSummary(
                key=found["Key"].removeprefix(self._root),
                bytes=found["Size"],
                modified_at=found["LastModified"],
            )

    def versions(self, key: str) -> Sequence[str]:
        """Return the version ids of a key, newest first."""
        pages = self._client.get_paginator("list_object_versions").paginate(
            Bucket=self._bucket, Prefix=(whole := self._root + key)
        )
        found = []
        with translated():
            for page in pages:
                listed = page.get("Versions", [])
                found += [v["VersionId"] for v in listed if v["Key"] == whole]
                # Keys come in order: the first longer key ends the versions of ours.
                if any(version["Key"] != whole for version in listed):
                    break
        return found

    def delete(self, key: str) -> None:
        """Put a delete marker over an object."""
        with translated():
            self._client.delete_object(Bucket=self._bucket, Key=self._root + key)


def _was_repeated(error: SpindownError) -> bool:
    """Tell whether botocore has sent a request more than once before this answer."""
    cause = error.__cause__
    if not isinstance(cause, ClientError):
        return False
    return bool(cause.response["ResponseMetadata"].get("RetryAttempts"))


class S3InputSource:
    """InputSource on S3, within the prefixes that the workload declares."""

    def __init__(self, client: "S3Client", declared: Sequence[str]) -> None:
        self._client = client
        self._declared = tuple(declared)

    def read(self, uri: str, *, at_most_bytes: int) -> bytes:
        """Read an object; one that is too large is not downloaded."""
        at = check_declared(uri, self._declared)
        with translated(_OF_INPUTS):
            answer = self._client.get_object(Bucket=at.bucket, Key=at.key)
            return _read(answer, uri, at_most_bytes)

    def list(self, uri_prefix: str) -> Iterator[str]:
        """Yield the URIs of the objects under a prefix, in key order."""
        at = check_listed(uri_prefix, self._declared)
        for found in _list(self._client, at.bucket, at.key, _OF_INPUTS):
            yield str(Location(bucket=at.bucket, key=found["Key"]))

    def fetch(self, uri: str, path: Path) -> None:
        """Download an object to a local file."""
        at = check_declared(uri, self._declared)
        with _transferring(_OF_INPUTS):
            try:
                self._client.download_file(at.bucket, at.key, str(path))
            except ClientError as error:
                if code_of(error) in _BARE:
                    first = self._client.get_object(Bucket=at.bucket, Key=at.key, Range="bytes=0-0")
                    first["Body"].close()
                raise


def _read(answer: "GetObjectOutputTypeDef", name: str, at_most_bytes: int | None) -> bytes:
    with answer["Body"] as body:
        if at_most_bytes is not None and answer["ContentLength"] > at_most_bytes:
            raise too_large(name, answer["ContentLength"], at_most_bytes)
        return body.read()


def _list(
    client: "S3Client",
    bucket: str,
    prefix: str,
    exceptions: Mapping[str, type[SpindownError]] | None = None,
) -> "Iterator[ObjectTypeDef]":
    with translated(exceptions):
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            yield from page.get("Contents", [])


@contextmanager
def _transferring(
    exceptions: Mapping[str, type[SpindownError]] | None = None,
) -> Iterator[None]:
    """Raise our errors for those of a managed transfer.

    One of an object that was replaced meanwhile: the next try gets the one that lies there then.
    """
    # Functions do without boto3.
    from boto3.exceptions import Boto3Error  # noqa: PLC0415
    from s3transfer.exceptions import S3DownloadFailedError, S3ValidationError  # noqa: PLC0415

    try:
        with translated(exceptions):
            yield
    except (Boto3Error, S3DownloadFailedError, S3ValidationError) as error:
        raise Unreachable(f"the transfer failed: {error}") from error
