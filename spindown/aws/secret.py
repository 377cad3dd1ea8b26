"""Secrets of a workload: parameters of SSM, and secrets of Secrets Manager."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from spindown.aws.error import translated
from spindown.contract.run_spec import is_parameter
from spindown.error import ContractError, NotFound

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


_GONE = {"ParameterNotFound": NotFound, "ResourceNotFoundException": NotFound}


class SecretSource:
    """Reads what a name stands for, each with the service that keeps it."""

    def __init__(self, ssm: "Callable[[], SSMClient]", secrets: Callable[[], Any]) -> None:
        self._ssm = ssm
        self._secrets = secrets

    def read(self, name: str) -> str:
        """Return the text of a secret.

        Raises:
            NotFound, AccessDenied: it is not there, or not granted.
            ContractError: it holds bytes, which no environment variable can.
        """
        with translated(_GONE):
            if is_parameter(name):
                found = self._ssm().get_parameter(Name=name, WithDecryption=True)
                return found["Parameter"]["Value"]
            answer: Mapping[str, str] = self._secrets().get_secret_value(SecretId=name)
        if "SecretString" not in answer:
            raise ContractError("run.secrets", name, "store it as text")
        return answer["SecretString"]
