"""A view that goes on is not ended by one look to which AWS gives no answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spindown.cli.explain.status import _looks
from spindown.cli.session import Session
from spindown.error import SpindownError, Throttled, Unreachable


@dataclass
class Asked:
    """A session whose answers are given; an error among them is raised."""

    answers: list[Any]
    deployment: Any = field(default_factory=lambda: SimpleNamespace(workloads=("ocr",)))
    #: Notes that were there, and what was asked meanwhile.
    noted: list[str] = field(default_factory=list)

    @contextmanager
    def told_if_slow(self) -> Iterator[None]:
        self.noted.append("begin")
        yield
        self.noted.append("end")

    def check_there(self) -> None:
        if not self.answers:
            raise SpindownError("nobody is there")

    def status(self, workload: str) -> Any:
        self.noted.append(workload)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return f"{workload}: {answer}"


def looks(*answers: Any, at_most: int) -> list[Any]:
    return list(islice(_looks(cast("Session", Asked([*answers])), None, 0.0, Event()), at_most))


def test_a_look_without_an_answer_is_tried_again() -> None:
    lost = (Throttled("slow down"), Unreachable("no route"))

    assert looks("one", *lost, "two", at_most=2) == [["ocr: one"], ["ocr: two"]]


def test_it_ends_once_nobody_can_answer_any_more() -> None:
    with pytest.raises(SpindownError, match="nobody is there"):
        looks("one", Unreachable("no route"), at_most=2)


def test_what_cannot_begin_is_told() -> None:
    with pytest.raises(Unreachable):
        looks(Unreachable("no route"), at_most=1)


def test_the_note_is_gone_before_a_live_screen_is_there() -> None:
    asked = Asked(["one"])

    _looks(cast("Session", asked), None, 0.0, Event())

    assert asked.noted == ["begin", "ocr", "end"]
