"""How far code says that it is: a line that it prints, or that ``ctx.progress`` prints for it."""

import re

from spindown.domain.fleet import CodeProgress
from spindown.error import printable
from spindown.user import PROGRESS_MARK

#: Of the text; it goes into a row of the ledger with each heartbeat.
TEXT_CHARACTERS = 120

_SAID = re.compile(r"(\d{1,15})/(\d{1,15})(?:\s+(.*))?")


def split_progress(line: str) -> tuple[str, CodeProgress | None]:
    """Return what of a line was printed for people, and the progress that ends it, if one does.

    A progress bar leaves its line open, so the mark need not begin one.
    """
    printed, mark, said = line.rpartition(PROGRESS_MARK)
    found = _SAID.fullmatch(said.strip()) if mark else None
    if found is None:
        return line, None
    text = printable((found[3] or "")[:TEXT_CHARACTERS])[:TEXT_CHARACTERS]
    return printed, CodeProgress(done=int(found[1]), of=int(found[2]), text=text)
