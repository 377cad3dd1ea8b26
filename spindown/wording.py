"""Words for people: the one place where reasons become sentences.

Nothing that decides may import this module.
"""

from collections.abc import Callable, Mapping

from spindown.domain.reason import Code, Reason

About = Mapping[str, str | int | float]

_WORDS: Mapping[Code, str | Callable[[About], str]] = {
    Code.NONE: "",
    Code.IDLE: "it was idle",
    Code.IDLE_UNHEARD: "it was idle, and the ledger did not answer",
    Code.LIFETIME_OVER: "its max_lifetime is over",
    Code.INTERRUPTED: "EC2 takes it away",
    Code.REBALANCE: "EC2 sees a higher risk of an interruption",
    Code.STOPPED: "the system was asked to stop",
    Code.CONDEMNED: "it was ended by the scaler",
    Code.OTHER_CODE: "other code is deployed",
    Code.NO_ROOM: "max_workers is 0",
    Code.RELIEVED: "another worker goes on with its jobs",
    Code.UNFIT: "{fault}",
    Code.FAULTY: "the machine or the worker failed again and again",
    Code.JOBS_FAILED: "its last jobs all failed",
}


def say(reason: Reason) -> str:
    """Return a reason as a clause for a person, without a full stop; "" if there is none."""
    words = _WORDS[reason.code]
    return words.format_map(reason.about) if isinstance(words, str) else words(reason.about)
