"""Tell that the table of the ledger is gone, which no row of it can keep."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from spindown.contract.name import resource_name
from spindown.domain.alert import SAID_AGAIN_AFTER, Alert
from spindown.error import LedgerMissing, SpindownError
from spindown.port import AnswerKind, ControlPorts

#: Each container of a function tells once a day.
_TOLD: AnswerKind[None] = AnswerKind("ledger-missing", SAID_AGAIN_AFTER)


@contextmanager
def ledger_missed(ports: ControlPorts) -> Iterator[None]:
    """Tell people at once if there is no ledger. Else ``tick-missing`` alone rings, in 5 minutes.

    Raises:
        LedgerMissing: there is none.
    """
    try:
        yield
    except LedgerMissing as missing:
        with suppress(SpindownError):
            tell = partial(_tell, str(missing), ports)
            ports.cache.recall(_TOLD, "", ports.clock.now(), tell)
        raise


def _tell(missing: str, ports: ControlPorts) -> None:
    alert = Alert(
        name="ledger-missing",
        says=f"No tick can run: {missing}. Nothing is launched, charged or ended; workers end by "
        "themselves.",
        remedy="restore it as `spindown docs runbook` says (The ledger is damaged or gone).",
    )
    ports.topic.publish(f"{resource_name(ports.name, 'ledger')}: {alert.name}", alert.text)
