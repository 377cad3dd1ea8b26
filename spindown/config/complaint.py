"""Turn pydantic's list of errors into one sentence: key, value, remedy."""

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from spindown.error import ConfigError

#: pydantic's kind of error -> the remedy, with its context filled in.
_REMEDIES = {
    "missing": "write this key",
    "greater_than": "make it greater than {gt:.15g}",
    "greater_than_equal": "make it at least {ge:.15g}",
    "less_than_equal": "make it at most {le:.15g}",
    "too_short": "name at least {min_length}",
    "too_long": "name at most {max_length}",
    "literal_error": "write one of {expected}",
    "enum": "write one of {expected}",
    "int_type": "write a whole number",
    "int_parsing": "write a whole number",
    "int_from_float": "write a whole number",
    "float_type": "write a number",
    "path_type": "write a path in quotes",
    "float_parsing": "write a number",
    "finite_number": "write a finite number",
    "string_type": "write a text in quotes",
    "bool_type": "write true or false",
    "bool_parsing": "write true or false",
    "model_type": "write a table",
    "dict_type": "write a table",
    "tuple_type": "write a list",
    "frozen_set_type": "write a list",
}

#: Keys whose values only the account can tell.
_FOUND_BY_INIT = frozenset({"region", "zones"})
_ASK_THE_ACCOUNT = "write this key, or let `spindown init --from-account` fill it in"


def translate(
    error: ValidationError,
    root: type[BaseModel],
    document: object,
    *,
    elsewhere: Mapping[str, str] | None = None,
) -> ConfigError:
    """Return the first complaint of ``error`` about ``document`` in the user's words.

    ``elsewhere``: a key that is none of ``root`` -> what to do with it instead.
    """
    first = error.errors()[0]
    where = [str(step) for step in first["loc"] if not _is_branch(str(step))]
    kind, context = first["type"], first.get("ctx", {})
    if kind == "extra_forbidden":
        known = (elsewhere or {}).get(where[-1])
        return ConfigError(".".join(where), first["input"], known or _suggest_key(where[-1], root))
    if kind == "remedy":
        where += str(context["field"]).split(".")
        return ConfigError(".".join(where), _dig(document, where), str(context["remedy"]))
    if kind == "missing" and where[-1] in _FOUND_BY_INIT:
        return ConfigError(".".join(where), None, _ASK_THE_ACCOUNT)
    value = None if kind == "missing" else first["input"]
    return ConfigError(".".join(where), value, word_remedy(kind, context, first["msg"]))


def word_remedy(kind: str, context: Mapping[str, Any], message: str) -> str:
    """Return what fixes an error of pydantic's, by its type, its context and its text."""
    if kind in _REMEDIES:
        return _REMEDIES[kind].format(**context)
    words = str(context.get("error") or message)
    return words[:1].lower() + words[1:]


def _is_branch(step: str) -> bool:
    """Tell pydantic's own names of union branches from keys of the document."""
    return any(mark in step for mark in "[]()") or step in {
        "constrained-float",
        "int",
        "literal",
        "str",
    }


def _dig(document: object, where: list[str]) -> object:
    for step in where:
        document = document.get(step) if isinstance(document, Mapping) else None
    return document


def _suggest_key(key: str, root: type[BaseModel]) -> str:
    known = sorted(_keys_below(root))
    if key in known:
        return "move it to the table whose key it is: `spindown docs settings`"
    close = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {close[0]}?" if close else "take this unknown key out"


def _keys_below(model: type[BaseModel]) -> set[str]:
    found: set[str] = set()
    for name, info in model.model_fields.items():
        found.add(name)
        for part in (info.annotation, *getattr(info.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= _keys_below(part)
    return found
