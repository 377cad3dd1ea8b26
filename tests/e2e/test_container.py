"""A container, deployed and run: in docker's real daemon, by workers that are taken away."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.e2e.world import SWIFT, World, deployed, found
from tests.local.world import at_once
from tests.proof.container.engine import Docker
from tests.proof.container.registry import IMAGE

pytestmark = pytest.mark.proof

#: Counts to the item; where it stands outlives its container.
_PROGRAM = """
index=${SPINDOWN_ITEM_OUTPUT##*/}
state=$SPINDOWN_CHECKPOINT/$index
step=$(cat "$state" 2>/dev/null || echo 0)
from=$step
echo "item $index: from $from of $SPINDOWN_ITEM"
trap 'echo "told to stop"; exit 143' TERM
while [ "$step" -lt "$SPINDOWN_ITEM" ]; do
    sleep 0.1
    step=$((step + 1))
    echo "$step" >"$state.tmp" && mv "$state.tmp" "$state"
done
echo "{\\"index\\": $index, \\"value\\": {\\"from\\": $from, \\"to\\": $step}}" \
    >>"$SPINDOWN_RESULTS"
"""
_CONFIG = """
[deployment]
name = "e2e"
region = "us-east-1"
zones = ["us-east-1a", "us-east-1b"]

[workload.count.run]
image = "{image}"
command = ["sh", "count.sh"]
code = "count"
batch_size = 1
item_timeout = "5m"
stop_grace = "2s"

[workload.count.policy]
{swift}checkpoint_interval = "1s"
commit_margin = "1s"

[workload.absent.run]
image = "{absent}"

[workload.absent.policy]
{swift}max_failures = 1
max_failures_on_two = 1
"""


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    docker = Docker(tmp_path_factory.mktemp("engine"))
    yield docker
    docker.close()


@pytest.fixture(scope="module")
def world(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("container")
    (directory / "count").mkdir()
    (directory / "count" / "count.sh").write_text(_PROGRAM, encoding="utf-8")
    path: Path = directory / "spindown.toml"
    absent = IMAGE.replace("busybox", "absent")
    text = _CONFIG.format(image=docker.image, absent=absent, swift=SWIFT)
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{docker.directory}/bin", prepend=":")
        with deployed(path, at_once().model_copy(update={"interruption": ()})) as world:
            yield world


@pytest.mark.parametrize(
    ("job_id", "notice", "steps"),
    [
        # Long enough for a second look at the metadata, should the first one time out.
        pytest.param("told", timedelta(seconds=15), 300, id="with notice"),
        pytest.param("untold", timedelta(0), 150, id="without a word"),
    ],
)
def test_another_container_resumes_after_a_reclaim(
    world: World, docker: Docker, job_id: str, notice: timedelta, steps: int
) -> None:
    world.send("count", {"items": ["1", str(steps)], "job_id": job_id})
    first = world.worker_at_work("count", job_id=job_id)
    store = world.session.work_store("count")
    # One for each content: a manifest lists the state before the last.
    found(lambda: len(list(store.list(f"state/{job_id}/"))) > 2)
    world.system.market.interrupt(first.instance_id, notice=notice)

    world.worker_at_work("count", first.instance_id, job_id=job_id)
    # What it was at goes with its instance.
    found(lambda: not [name for name in docker.containers() if first.instance_id in name])
    done = world.finished(job_id)

    assert done.state == "completed"
    short, long = (record["result"] for record in world.records(job_id))
    assert (short["to"], long["to"]) == (1, steps)
    assert long["from"] > 0
    log = world.spindown("logs", job_id).stdout
    assert f"== {job_id}, attempt 1 ==\nitem 0: from 0 of 1\n" in log
    assert f"item 1: from {long['from']} of {steps}" in log
    assert ("told to stop" in log) is bool(notice)


def test_an_image_that_cannot_be_pulled_is_in_the_dead_letter(world: World) -> None:
    message_id = world.send("absent", {"items": ["a"], "job_id": "unpulled"})

    letter = world.dead_letter("absent", message_id)

    assert letter["job_id"] == "unpulled"
    assert "localhost:5000/spindown/absent:1 cannot be pulled" in letter["reason"]


def test_no_container_is_left_when_the_work_is_done(world: World, docker: Docker) -> None:
    found(lambda: not [one for one in world.instances("count") if one.state.is_alive])

    assert docker.containers() == []
