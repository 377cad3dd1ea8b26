"""What a person reads when a command fails: one sentence with name, value and remedy.

Our own errors have this form already. This module gives it to the errors of typer and AWS.
"""

import errno
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import typer

from spindown.cli.option import CONFIG_FILE, place_commands, place_of
from spindown.error import (
    AccessDenied,
    BadInput,
    LedgerMissing,
    SpindownError,
    Throttled,
    Unreachable,
    Unreadable,
    printable,
)

_LOG_IN = (
    "log in to AWS again, choose another profile (AWS_PROFILE), or get the permission;"
    " `spindown doctor` names it"
)
_CONNECT = "check that this machine can reach it, and that region and AWS_ENDPOINT_URL are right"
_READABLE = "restore it from the archive, or enable the key that it is encrypted with"
_WAIT = "try again in a minute"
_RESTORE = "restore it (`spindown docs runbook`, The ledger is damaged or gone)"
#: Kind of error -> its remedy, where the use case gave none.
_REMEDIES = (
    (Unreadable, _READABLE),
    (AccessDenied, _LOG_IN),
    (LedgerMissing, _RESTORE),
    (Throttled, _WAIT),
    (Unreachable, _CONNECT),
)


def describe(error: Exception, arguments: Sequence[str] = ()) -> str:
    """Return an error as one line for a person; "": there is nothing to say.

    Args:
        error: what was raised.
        arguments: of the command, whose deployment the commands are for that a remedy names.
    """
    if isinstance(error, typer.TyperException):
        said = _tell_usage(error, arguments)
    elif isinstance(error, typer.Abort):
        said = "nothing was done"
    elif isinstance(error, OSError) and error.strerror:
        # The reader of our output, `head` for instance, may stop early.
        said = "" if error.errno == errno.EPIPE else _tell_of_file(error)
    else:
        said = f"{error or type(error).__doc__}{_remedy(error)}"
    said = place_commands(said, place_of(arguments))
    line = printable(" ".join(said.split()))
    return f"spindown: {line}\n" if line else ""


def _tell_usage(error: typer.TyperException, arguments: Sequence[str]) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "spindown"
    if isinstance(error, typer.BadParameter) and error.param is not None:
        name = (error.param.get_error_hint() or "").strip("'")
        if error.__cause__ is not None and (translated := _translate(name, error.__cause__)):
            return str(translated)
        if not error.message:
            known = ", ".join(_workloads(arguments)) if name == "workload" else ""
            usage = f"`{command} --help`"
            remedy = f"name one of {known} ({usage})" if known else f"write it, as {usage} shows"
            return str(BadInput(name, None, remedy))
    option = getattr(error, "option_name", None)
    if option is not None:
        return _tell_option(option, error, command if context is not None else None)
    said = error.format_message().rstrip(".")
    # Empty when a command without arguments has printed its help.
    return f"{said}: see `{command} --help`" if said and not said.endswith("?") else said


def _workloads(arguments: Sequence[str]) -> Sequence[str]:
    """Return the workloads of the file that a command is about; none: there is no such file."""
    words = shlex.split(place_of(arguments))
    if "--deployment" in words:
        return ()
    from spindown import config  # noqa: PLC0415 - slow, and seldom needed

    file = Path(words[words.index("--config") + 1]) if "--config" in words else CONFIG_FILE
    try:
        return tuple(config.load(file).workloads)
    except BadInput:
        return ()


def _tell_option(option: str, error: typer.TyperException, command: str | None) -> str:
    if command is None:
        if "requires" in error.message:
            return str(BadInput(option, None, "write a value after it"))
        return f"{option} takes no value: write it alone"
    names = {one.strip("-"): one for one in getattr(error, "possibilities", None) or ()}
    # Without the dashes, which all options have in common.
    close = get_close_matches(option.strip("-"), names, n=1)
    remedy = f"did you mean {names[close[0]]}?" if close else f"see `{command} --help`"
    return f"{option} is no option of {command}: {remedy}"


def _translate(name: str, cause: BaseException) -> BadInput | None:
    """Return a mistake that a model of the configuration has found; None: another has."""
    from pydantic import ValidationError  # noqa: PLC0415 - slow, and seldom needed

    from spindown.config.validation_error import word_remedy  # noqa: PLC0415 - likewise

    if not isinstance(cause, ValidationError):
        return None
    first = cause.errors()[0]
    remedy = word_remedy(first["type"], first.get("ctx", {}), first["msg"]).rstrip(".")
    _, is_choice, choices = remedy.partition(" is not one of ")
    return BadInput(name, first["input"], f"write one of {choices}" if is_choice else remedy)


def _tell_of_file(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}"


def _remedy(error: Exception) -> str:
    """Return the remedy for an error of AWS, or for no answer."""
    cause = error.__cause__
    if not isinstance(error, SpindownError) or cause is None:
        return ""
    from botocore import exceptions  # noqa: PLC0415 - slow, and loaded where AWS was asked

    if not isinstance(cause, (exceptions.BotoCoreError, exceptions.ClientError)):
        return ""
    # Nobody is logged in; no request was made.
    nobody = (
        exceptions.CredentialRetrievalError,
        exceptions.LoginError,
        exceptions.NoCredentialsError,
        exceptions.SSOError,
        exceptions.TokenRetrievalError,
    )
    if isinstance(cause, nobody):
        return f": {_LOG_IN}"
    return next((f": {remedy}" for kind, remedy in _REMEDIES if isinstance(error, kind)), "")
