"""Turn pydantic's list of errors into one sentence: key, value, remedy."""

import difflib
from collections.abc import Mapping, Sequence
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
        return ConfigError(".".join(where), first["input"], known or _suggest_key(where, root))
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
        if isinstance(document, list) and step.isdigit():
            document = document[int(step)]
        else:
            document = document.get(step) if isinstance(document, Mapping) else None
    return document


#: A key of types, messages or the decorator -> that of requirements, where this does not begin so.
_OF_REQUIREMENTS = {"gpu": "gpu_names", "gpus": "gpu_count_min"}
#: How like another key one must be that is right in another table.
_ALIKE, _MUCH_ALIKE = 0.6, 0.8


def _suggest_key(where: Sequence[str], root: type[BaseModel]) -> str:
    """Return what to write in place of a key: the nearest of its table, before other tables'."""
    key, own, known = where[-1], sorted(_form_of(where, root).model_fields), _keys_below(root)
    begun = [one for one in own if one == _OF_REQUIREMENTS.get(key) or one == f"{key}_min"]
    alike = _MUCH_ALIKE if key in known else _ALIKE
    near = begun or difflib.get_close_matches(key, own, n=1, cutoff=alike)
    if not near and key in known:
        above = [where[:depth] for depth in range(len(where) - 1, 0, -1)]
        for table in above:
            if key in _form_of([*table, key], root).model_fields:
                return f"move it up to [{'.'.join(table)}], which it is a key of"
        return "move it to the table whose key it is: `spindown docs settings`"
    close = near or difflib.get_close_matches(key, sorted(known), n=1, cutoff=_ALIKE)
    return f"did you mean {close[0]}?" if close else "take this unknown key out"


def _form_of(where: Sequence[str], root: type[BaseModel]) -> type[BaseModel]:
    """Return the form of the table that has a key."""
    form = root
    for step in where[:-1]:
        # What is no field is a name or a place, as of a workload.
        info = form.model_fields.get(step)
        form = next(iter(_forms_in(info.annotation)), form) if info else form
    return form


def _forms_in(annotation: Any) -> list[type[BaseModel]]:
    parts = (annotation, *getattr(annotation, "__args__", ()))
    return [one for one in parts if isinstance(one, type) and issubclass(one, BaseModel)]


def _keys_below(model: type[BaseModel]) -> set[str]:
    found: set[str] = set()
    for name, info in model.model_fields.items():
        found.add(name)
        for part in _forms_in(info.annotation):
            found |= _keys_below(part)
    return found
