"""Translate botocore's errors into those of ``spindown.error``, by their codes.

What all calls may meet is judged here; a code that one question alone is about is judged beside
that question (``dynamodb``, ``account``, ``control.plan.launch_image``).

The refusal of a launch becomes a ``RefusalKind``, which decides what is tried next. The codes are
from the botocore service models and the AWS documentation of CreateFleet. The kinds follow
Karpenter (aws/karpenter-provider-aws, pkg/errors), except that a full quota does not count as a
pool without capacity.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from urllib3.exceptions import HTTPError

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

_HTTP_SERVER_ERROR = 500

_CODES: Mapping[type[SpindownError], tuple[str, ...]] = {
    Throttled: (
        "BandwidthLimitExceeded",
        "CallRateLimitExceededException",
        "EC2ThrottledException",
        # Of SQS, as its query protocol calls it, whose codes its clients are still given.
        "KMS.ThrottlingException",
        "LimitExceededException",
        "OverLimit",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "SlowDown",
        "Throttled",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
        "TooManyRequestsException",
        "TooManyUpdates",
        "Unavailable",
    ),
    AccessDenied: (
        "403",
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "AuthorizationError",
        "ExpiredToken",
        "ExpiredTokenException",
        # Of EC2 Image Builder.
        "ForbiddenException",
        "Forbidden",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        # Of SQS: its key refuses, or cannot be used.
        "KMS.AccessDeniedException",
        "KMS.DisabledException",
        "KMS.InvalidKeyUsageException",
        "KMS.InvalidStateException",
        "KMS.NotFoundException",
        "KMS.OptInRequired",
        "NotAuthorized",
        "OptInRequired",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    ),
    NotFound: (
        "404",
        "AWS.SimpleQueueService.NonExistentQueue",
        "InvalidInstanceID.Malformed",
        "InvalidInstanceID.NotFound",
        "NoSuchBucket",
        "NoSuchKey",
        "NoSuchResourceException",
        "NoSuchVersion",
        "NotFound",
        "ParameterNotFound",
        "QueueDoesNotExist",
        "ResourceNotFoundException",
    ),
    PreconditionFailed: ("412", "ConditionalCheckFailedException", "PreconditionFailed"),
    WriteConflict: (
        "409",
        "ConditionalRequestConflict",
        "OperationAborted",
        "TransactionConflict",
        "TransactionConflictException",
    ),
    StaleHandle: (
        "AWS.SimpleQueueService.MessageNotInflight",
        "MessageNotInflight",
        "ReceiptHandleIsInvalid",
    ),
    ContractError: (
        "AWS.SimpleQueueService.BatchRequestTooLong",
        "BatchRequestTooLong",
        "EntityTooLarge",
        "InvalidMessageContents",
        "InvalidParameter",
        "InvalidParameterValue",
        "ParameterMaxVersionLimitExceeded",
        "ValidationError",
        "ValidationException",
    ),
    Unreachable: (
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "RequestTimeout",
        "RequestTimeoutException",
        # The first try of a repeated call is still in progress and may succeed.
        "TransactionInProgressException",
    ),
}

_ERROR_OF: Mapping[str, type[SpindownError]] = {
    code: error for error, codes in _CODES.items() for code in codes
}

_REFUSALS: Mapping[RefusalKind, tuple[str, ...]] = {
    RefusalKind.CAPACITY: (
        "InsufficientAddressCapacity",
        "InsufficientCapacity",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "InternalError",
        # For one override: its type is not offered in the zone of its subnet.
        "InvalidFleetConfiguration",
        "ReservationCapacityExceeded",
        "Server.InternalError",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
        "Unsupported",
    ),
    RefusalKind.QUOTA: (
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "SpotRequestLimitExceeded",
        "VcpuLimitExceeded",
    ),
    RefusalKind.ACCOUNT: (
        "AccessDenied",
        "AuthFailure",
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "Blocked",
        "DryRunOperation",
        "IdempotentParameterMismatch",
        "InvalidAMIID.Malformed",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Unavailable",
        # Of a root volume that is smaller than the image's snapshot.
        "InvalidBlockDeviceMapping",
        "InvalidFleetConfig",
        "InvalidGroup.NotFound",
        "InvalidKeyPair.NotFound",
        "InvalidLaunchTemplateId.Malformed",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.VersionNotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        # Also "not eligible for Free Tier": such an account can launch no GPU type at all.
        "InvalidParameterCombination",
        "InvalidParameterValue",
        "InvalidSubnetID.NotFound",
        "InvalidUserData.Malformed",
        # Limits that all classes of vCPUs share: none of them can be launched.
        "MaxFleetCountExceeded",
        "MissingParameter",
        "OptInRequired",
        "PendingVerification",
        # Of the parameter that holds the image's id.
        "SsmAccessDenied",
        "SsmInvalidParameter",
        "UnauthorizedOperation",
        "VolumeLimitExceeded",
    ),
    RefusalKind.THROTTLE: (
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "Unavailable",
    ),
}

_REFUSAL_OF: Mapping[str, RefusalKind] = {
    code: kind for kind, codes in _REFUSALS.items() for code in codes
}


#: Codes that leave the outcome unknown. A status of 500 alone does not: EC2 gives it for full
#: pools too (Amazon EC2 API Reference, "Error codes", server errors).
OPEN_ENDED = frozenset({"InternalError", "Server.InternalError"})

#: Codes about what was asked for: of a whole request too they say nothing of other pools (Amazon
#: EC2 API Reference, "Error codes": a value, or a combination of values, that is not supported).
OF_OVERRIDES = frozenset(
    {
        "InvalidFleetConfig",
        "InvalidFleetConfiguration",
        "InvalidParameterCombination",
        "InvalidParameterValue",
    }
)

#: Codes about the subnet, and so about every type in its zone.
OF_SUBNET = frozenset({"InsufficientFreeAddressesInSubnet"})


#: Remedies for limits of which EC2 says only that they are reached. The code of EBS's quota:
#: AWS General Reference, "Amazon EBS endpoints and quotas".
_REMEDIES: Mapping[str, str] = {
    "MaxFleetCountExceeded": "Delete fleets that nobody needs, which aws ec2 describe-fleets lists",
    "VolumeLimitExceeded": "Ask for more TiB of gp3 volumes: aws service-quotas "
    "request-service-quota-increase --service-code ebs --quota-code L-7A658B76 --desired-value "
    "TIB; or delete volumes, or lower root_volume_gib",
}

#: UnauthorizedOperation carries a page of encoded text.
_WORDS_AT_MOST = 400


def refusal_words(code: str, message: str) -> str:
    """Return EC2's message for a refusal, shortened, and its remedy if known."""
    words, remedy = message[:_WORDS_AT_MOST], _REMEDIES.get(code)
    if remedy is None:
        return words
    return f"{words.removesuffix('.')}. {remedy}" if words else remedy


def refusal_kind(code: str, *, is_whole_request: bool = False) -> RefusalKind:
    """Return the kind of a CreateFleet code, for one override or for the whole request."""
    if is_whole_request and code == "InvalidFleetConfiguration":
        return RefusalKind.ACCOUNT
    return _REFUSAL_OF.get(code, RefusalKind.UNKNOWN)


def code_of(error: ClientError) -> str:
    """Return the error code that a service gave."""
    return str(error.response.get("Error", {}).get("Code", ""))


def message_of(error: ClientError) -> str:
    """Return the message that a service gave."""
    return str(error.response.get("Error", {}).get("Message", ""))


def is_server_fault(error: ClientError) -> bool:
    """Tell whether the service itself failed, so that the outcome of the call is unknown."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= _HTTP_SERVER_ERROR


def translate(error: BotoCoreError | ClientError | HTTPError) -> SpindownError:
    """Return our error for an error of botocore."""
    if isinstance(error, NoCredentialsError):
        return AccessDenied("no AWS credentials: give a profile, a role or environment variables")
    if not isinstance(error, ClientError):
        return Unreachable(f"no usable answer: {error}")
    code, operation = code_of(error), error.operation_name
    found = _ERROR_OF.get(code)
    if found is None:
        found = Unreachable if is_server_fault(error) else SpindownError
    if found is ContractError:
        return ContractError(operation, message_of(error), f"fix the request ({code})")
    return found(_said(error))


def _said(error: ClientError) -> str:
    return ": ".join(filter(None, (error.operation_name, code_of(error), message_of(error))))


@contextmanager
def translated(exceptions: Mapping[str, type[SpindownError]] | None = None) -> Iterator[None]:
    """Raise our errors for botocore's; ``exceptions`` maps codes that mean more at this call."""
    try:
        yield
    except ClientError as error:
        here = (exceptions or {}).get(code_of(error))
        if here is not None:
            raise here(_said(error)) from error
        raise translate(error) from error
    # A body is read behind botocore's back: it tells of most that can happen meanwhile, not of all.
    except (BotoCoreError, HTTPError) as error:
        raise translate(error) from error
