"""Filters and paging, alike for every describe call."""

import base64
import re
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from spindown.local.market.wire.error import ApiError

Subject = TypeVar("Subject")
#: Filter name to the values of a subject that it is compared with.
Readers = Mapping[str, Callable[[Subject], Iterable[str]]]


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Return EC2's wildcards as an expression: * any text, ? one character."""
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def passes(
    subject: Subject,
    filters: Sequence[Mapping[str, Any]],
    readers: Readers[Subject],
    *,
    tags: Callable[[Subject], Mapping[str, str]] | None = None,
) -> bool:
    """Tell whether a subject passes every filter; a filter passes with any of its values.

    `tags` adds tag:KEY and tag-key. An unknown filter name raises `ApiError`.
    """
    return all(
        any(
            _pattern(wanted).fullmatch(found)
            for found in _values(subject, one["Name"], readers, tags)
            for wanted in one.get("Values", [])
        )
        for one in filters
    )


def _values(
    subject: Subject,
    name: str,
    readers: Readers[Subject],
    tags: Callable[[Subject], Mapping[str, str]] | None,
) -> Iterable[str]:
    if tags is not None and name == "tag-key":
        return tags(subject)
    if tags is not None and name.startswith("tag:"):
        value = tags(subject).get(name.removeprefix("tag:"))
        return [] if value is None else [value]
    if name not in readers:
        raise ApiError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return readers[name](subject)


def page(
    rows: Sequence[Subject], parameters: Mapping[str, Any], *, largest: int
) -> tuple[Sequence[Subject], str | None]:
    """Return one page of rows and the token of the next one, None after the last."""
    start = _offset(parameters["NextToken"]) if parameters.get("NextToken") else 0
    size = min(parameters.get("MaxResults") or largest, largest)
    end = start + size
    token = base64.urlsafe_b64encode(f"from={end}".encode()).decode() if end < len(rows) else None
    return rows[start:end], token


def _offset(token: str) -> int:
    try:
        text = base64.urlsafe_b64decode(token).decode()
        return int(text.removeprefix("from="))
    except (Base64Error, ValueError) as error:
        message = "The pagination token is not one of this operation's."
        raise ApiError("InvalidPaginationToken", message) from error
