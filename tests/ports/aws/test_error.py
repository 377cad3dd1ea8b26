"""How botocore's errors become ours, code by code."""

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from spindown.aws.error import refusal_kind, translate, translated
from spindown.error import (
    AccessDenied,
    ContractError,
    NotFound,
    PreconditionFailed,
    SpindownError,
    StaleHandle,
    Throttled,
    Unreachable,
    WriteConflict,
)
from spindown.port import RefusalKind


def _error(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": "said so"},
            "ResponseMetadata": {
                "HTTPStatusCode": status,
                "RequestId": "",
                "HostId": "",
                "HTTPHeaders": {},
                "RetryAttempts": 0,
            },
        },
        "SomeCall",
    )


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("NoSuchKey", 404, NotFound),
        ("404", 404, NotFound),
        ("ParameterNotFound", 400, NotFound),
        ("InvalidInstanceID.NotFound", 400, NotFound),
        ("AWS.SimpleQueueService.NonExistentQueue", 400, NotFound),
        ("PreconditionFailed", 412, PreconditionFailed),
        ("ConditionalCheckFailedException", 400, PreconditionFailed),
        ("ConditionalRequestConflict", 409, WriteConflict),
        ("TransactionConflictException", 400, WriteConflict),
        ("MessageNotInflight", 400, StaleHandle),
        ("ReceiptHandleIsInvalid", 400, StaleHandle),
        ("SlowDown", 503, Throttled),
        ("ProvisionedThroughputExceededException", 400, Throttled),
        ("RequestLimitExceeded", 503, Throttled),
        ("AccessDenied", 403, AccessDenied),
        ("UnauthorizedOperation", 403, AccessDenied),
        ("ExpiredToken", 400, AccessDenied),
        ("ValidationException", 400, ContractError),
        ("InternalError", 500, Unreachable),
        ("NeverHeardOf", 502, Unreachable),
        ("NeverHeardOf", 400, SpindownError),
    ],
)
def test_a_code_becomes_one_of_our_errors(
    code: str, status: int, expected: type[SpindownError]
) -> None:
    found = translate(_error(code, status))

    assert type(found) is expected
    assert "SomeCall" in str(found)
    assert "said so" in str(found)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectTimeoutError(endpoint_url="http://x"), Unreachable),
        (ReadTimeoutError(endpoint_url="http://x"), Unreachable),
        (EndpointConnectionError(endpoint_url="http://x"), Unreachable),
        (NoCredentialsError(), AccessDenied),
    ],
    ids=lambda case: case.__class__.__name__,
)
def test_no_answer_becomes_one_of_our_errors(
    error: BotoCoreError, expected: type[SpindownError]
) -> None:
    with pytest.raises(expected) as caught, translated():
        raise error
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("message", "said"),
    [("said so", "SomeCall: 403: said so"), ("", "SomeCall: 403")],
    ids=["with a message", "without one"],
)
def test_an_error_ends_with_what_the_service_said(message: str, said: str) -> None:
    error = _error("403")
    error.response["Error"]["Message"] = message

    assert str(translate(error)) == said


def test_a_place_may_know_better_what_a_code_means() -> None:
    with pytest.raises(StaleHandle), translated({"InvalidParameterValue": StaleHandle}):
        raise _error("InvalidParameterValue")
    with pytest.raises(ContractError), translated():
        raise _error("InvalidParameterValue")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", RefusalKind.CAPACITY),
        ("UnfulfillableCapacity", RefusalKind.CAPACITY),
        ("InsufficientHostCapacity", RefusalKind.CAPACITY),
        ("ReservationCapacityExceeded", RefusalKind.CAPACITY),
        ("Unsupported", RefusalKind.CAPACITY),
        ("InvalidFleetConfiguration", RefusalKind.CAPACITY),
        ("SpotMaxPriceTooLow", RefusalKind.CAPACITY),
        ("InsufficientFreeAddressesInSubnet", RefusalKind.CAPACITY),
        ("Server.InternalError", RefusalKind.CAPACITY),
        ("MaxSpotInstanceCountExceeded", RefusalKind.QUOTA),
        ("VcpuLimitExceeded", RefusalKind.QUOTA),
        ("MaxFleetCountExceeded", RefusalKind.ACCOUNT),
        ("VolumeLimitExceeded", RefusalKind.ACCOUNT),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", RefusalKind.ACCOUNT),
        ("PendingVerification", RefusalKind.ACCOUNT),
        ("InvalidParameterCombination", RefusalKind.ACCOUNT),
        ("InvalidAMIID.NotFound", RefusalKind.ACCOUNT),
        ("UnauthorizedOperation", RefusalKind.ACCOUNT),
        ("IdempotentParameterMismatch", RefusalKind.ACCOUNT),
        ("RequestLimitExceeded", RefusalKind.THROTTLE),
        ("Unavailable", RefusalKind.THROTTLE),
        ("NeverHeardOf", RefusalKind.UNKNOWN),
        ("", RefusalKind.UNKNOWN),
    ],
)
def test_a_refusal_says_what_to_try_next(code: str, kind: RefusalKind) -> None:
    assert refusal_kind(code) is kind


def test_a_fleet_that_is_wrong_as_a_whole_is_no_dry_pool() -> None:
    whole = refusal_kind("InvalidFleetConfiguration", is_whole_request=True)
    assert whole is RefusalKind.ACCOUNT
