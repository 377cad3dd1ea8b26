"""Durations and times of day as people write them: "90s", "1h30m"; "08:30"."""

import re
from datetime import timedelta

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")
#: So that a time that is now and as much later is one that clocks and tables can hold.
_MOST_DAYS = 3650
_STEP = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(text: object) -> timedelta:
    """Return the duration that text such as "1h30m" names; ValueError with the remedy."""
    if isinstance(text, timedelta):
        return text
    if not isinstance(text, str):
        raise ValueError('write a duration with its unit in quotes, such as "10m"')  # noqa: TRY004 - pydantic wants ValueError
    steps = _STEP.findall(text)
    if not steps or "".join(n + u for n, u in steps) != text:
        raise ValueError('write a duration such as "90s", "10m" or "1h30m" (ms, s, m, h, d)')
    seconds = sum(float(n) * _UNITS[u] for n, u in steps)
    if seconds > _MOST_DAYS * _UNITS["d"]:
        raise ValueError(f"make it at most {_MOST_DAYS}d")
    return timedelta(seconds=seconds)


def format_duration(length: timedelta) -> str:
    """Return the shortest text that ``parse_duration`` reads back as ``length``."""
    rest = round(length.total_seconds() * 1000)
    if rest == 0:
        return "0s"
    out = ""
    for unit, factor in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        count, rest = divmod(rest, factor)
        out += f"{count}{unit}" if count else ""
    return out + (f"{rest}ms" if rest else "")


def parse_clock(text: object) -> timedelta:
    """Return the time since midnight that text such as "08:30" names; "24:00" ends a day."""
    if isinstance(text, timedelta):
        return text
    if not isinstance(text, str) or not _CLOCK.fullmatch(text):
        raise ValueError('write a time of day such as "08:30"')
    hours, minutes = text.split(":")
    return timedelta(hours=int(hours), minutes=int(minutes))


def format_clock(since_midnight: timedelta) -> str:
    """Return the text that ``parse_clock`` reads back."""
    hours, minutes = divmod(round(since_midnight.total_seconds() / 60), 60)
    return f"{hours:02}:{minutes:02}"
