"""A deployment with a further region, cheaper or dearer than home."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.builders import AT_ONCE
from tests.control import ControlWorld

CHEAP_AWAY = (("g4dn.xlarge", 0.10),)
DEAR_AWAY = (("g4dn.xlarge", 0.30),)
MINUTE = timedelta(minutes=1)


def a_world(away: tuple[tuple[str, float], ...] = CHEAP_AWAY, **policy: Any) -> ControlWorld:
    return ControlWorld(
        policy=replace(AT_ONCE, **{"mib_per_item_estimate": 0.01, **policy}), away=away
    )
