"""What the worker makes of one slot, on an engine."""

import io
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from spindown.contract.run_spec import RunSpec
from spindown.user import Item
from spindown.worker.child.code import Code
from spindown.worker.child.command import CommandRunner
from spindown.worker.child.container import Container, find_runtime
from spindown.worker.child.failure_cause import MemoryKills
from spindown.worker.child.output import OutputLog
from spindown.worker.child.runner import Task
from spindown.worker.log import open_log
from tests.proof.container.engine import Engine

#: The user of the user's code; nobody else has it.
UID, GID = 64001, 64002
OWNER = "i-0123456789abcdef0"
#: Of the worker and of the machine: nothing of it is the container's business.
WORKERS_OWN = {
    "AWS_SECRET_ACCESS_KEY": "the worker's key",
    "http_proxy": "http://the-workers-proxy.example:3128",
    "SPINDOWN_ALIVE": "/run/spindown/alive",
}
SECRET = "a secret that only the program may know"
#: A result of item 0: a text without quotes.
_TELL = """tell() { echo "{\\"index\\": 0, \\"value\\": \\"$1\\"}" >>"$SPINDOWN_RESULTS"; }\n"""


class Bench:
    """What the worker makes of one slot, on an engine."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine = engine
        self.directory = directory
        self.runtime = find_runtime(engine.env)
        self.output_log = OutputLog()
        self.runners: list[CommandRunner] = []
        # As systemd-tmpfiles and ``make_scratch`` have it: shared with the code, by its group.
        for path in (directory, *directory.parents[:3]):
            path.chmod(path.stat().st_mode | 0o711)
        self.scratch = directory / "scratch"
        self.code = directory / "code"
        for path in (self.scratch, self.code):
            path.mkdir()
            os.chown(path, -1, GID)
            path.chmod(0o2750)

    @property
    def job(self) -> Path:
        """The directory of the last attempt."""
        return self.scratch / f"job-a.{len(self.runners)}"

    def run(
        self,
        script: str,
        *,
        owner: str = OWNER,
        gpus: Sequence[int] | None = (),
        **spec: Any,
    ) -> CommandRunner:
        """Hand one item to a container that runs a script; it lies in the code's directory."""
        (self.code / "program.sh").write_text(_TELL + script, encoding="utf-8")
        values = {
            "image": self.engine.image,
            "command": ("sh", "program.sh"),
            "item_timeout": timedelta(seconds=60),
            **spec,
        }
        code = Code(root=self.code, spec=RunSpec(**values), digest="d")
        place = Container(
            runtime=self.runtime,
            image=code.spec.image,
            argv=code.spec.command,
            gpus=gpus,
            user=f"{UID}:{GID}",
            slot=0,
            owner=owner,
            code=self.code,
            env={"LEVEL": "3", "TOKEN": SECRET},
            secrets={"TOKEN"},
            client_env={**self.engine.env, **WORKERS_OWN},
        )
        kills = MemoryKills(is_anywhere=True)
        runner = CommandRunner(code, place, slot=0, log=open_log(io.StringIO()), kills=kills)
        self.runners.append(runner)
        runner.warm()
        (self.job / "inputs").mkdir(parents=True)
        for name in ("outputs", "state", "home"):
            (self.job / name).mkdir()
            # As on an instance, whose worker shares a group with the code.
            os.chown(self.job / name, UID, GID)
        self.begin(runner)
        return runner

    def begin(self, runner: CommandRunner) -> None:
        """Hand an item to a container of the last attempt."""
        source = self.job / "inputs" / "0"
        source.write_text("input", encoding="utf-8")
        state = self.job / "state"
        task = Task(
            job_id="job-a", outputs=self.job / "outputs", state=state, output_log=self.output_log
        )
        runner.begin(task, [Item(0, "value of the item", source)])
