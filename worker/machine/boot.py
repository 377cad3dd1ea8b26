"""When the phases of this instance's boot ended that are over before its worker runs."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from spindown.domain.boot import BootPhase


def read_boot(
    now: datetime, begun: Path | None, *, uptime: Path = Path("/proc/uptime")
) -> Mapping[BootPhase, datetime]:
    """Return them, by the instance's clock; the last one is over now, since the worker starts.

    Args:
        now: of that clock.
        begun: where user data has left how long the system had been up, in seconds; None, or a
            file that cannot be read: nobody can say, as on a machine that was there before.
        uptime: file whose first number is how long it is up now.
    """
    ends = {BootPhase.INSTALL: now}
    with suppress(OSError, ValueError, IndexError):
        if begun is not None:
            up = float(uptime.read_text().split()[0])
            kernel_at = now - timedelta(seconds=up)
            begun_at = kernel_at + timedelta(seconds=float(begun.read_text()))
            ends |= {BootPhase.IMAGE: kernel_at, BootPhase.CLOUD_INIT: begun_at}
    return ends
