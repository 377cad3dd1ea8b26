"""A folder with its command, sent by ``spindown run`` and run by workloads that take folders.

Its archive lies where neither senders of messages nor workers nor operators may write, under the
SHA-256 of its bytes (``operate.iam_policy.runner``). The command is in the archive: a message names
an archive, and nothing that is run.
"""

import json
import re

from spindown.contract.codec import from_json
from spindown.error import ContractError

#: Member of the archive that holds the command, a JSON list of texts.
COMMAND_NAME = ".spindown-command.json"
#: Key of an item's result that holds the exit status.
EXIT_STATUS = "exit_status"
#: The files of a folder are not larger, together.
FOLDER_BYTES = 256 * 1024 * 1024

_ADDRESS = re.compile(r"s3://[^/]+/folders/[^/]+/([0-9a-f]{64})\.zip")


def folder_prefix(workload: str) -> str:
    """Return where the archives of a workload lie in the bucket."""
    return f"folders/{workload}/"


def folder_key(workload: str, digest: str) -> str:
    """Return the S3 key of an archive, by the SHA-256 of its bytes."""
    return f"{folder_prefix(workload)}{digest}.zip"


def digest_of(address: str) -> str:
    """Return the digest that the address of an archive names; "": it is no such address.

    Nothing may stand between the workload and the digest: ``*`` of a policy matches ``/`` too, so
    whoever may write below ``workloads/`` may write ``folders/NAME/workloads/...`` as well.
    """
    found = _ADDRESS.fullmatch(address)
    return found[1] if found else ""


def encode_command(command: list[str]) -> bytes:
    """Return the bytes of a command."""
    return json.dumps(command).encode()


def decode_command(data: bytes) -> list[str]:
    """Read a command (raises ContractError)."""
    remedy = "send the folder again with `spindown run`"
    found = from_json(COMMAND_NAME, data, remedy)
    if not isinstance(found, list) or not found or not all(isinstance(x, str) for x in found):
        raise ContractError(COMMAND_NAME, found, remedy)
    return found
