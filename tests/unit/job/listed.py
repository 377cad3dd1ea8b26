"""A workload of small jobs with a list and a prefix of ten items each, for items and splits."""

import json
from collections.abc import Callable

from spindown.domain.policy import Policy
from spindown.error import WriteConflict
from spindown.memory.interception import PortCall
from tests.work import WorkWorld, items


def a_world() -> WorkWorld:
    lines = "".join(json.dumps(item) + "\n" for item in items(10)).encode()
    images = {f"s3://inputs/images/{n}.png": b"" for n in range(10, 20)}
    return WorkWorld(
        policy=Policy(max_items_per_job=4), sources={"s3://inputs/list.jsonl": lines, **images}
    )


def conflict(key: str, *, times: int) -> Callable[[PortCall], None]:
    """Return what refuses the first writes of an object as S3 does beside another's (409)."""
    left = iter(range(times))

    def refuse(call: PortCall) -> None:
        if call.method == "put" and call.args[0] == key and next(left, None) is not None:
            raise WriteConflict("another write is under way")

    return refuse
