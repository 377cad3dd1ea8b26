"""What an entrypoint names is looked for in the text of its module, which is never run."""

from pathlib import Path

import pytest

from spindown.config import RunConfig, WorkloadConfig
from spindown.config.archive import check_code
from spindown.error import ConfigError


def check(folder: Path, text: str, entrypoint: str = "job:run", code: str = "code") -> None:
    (folder / "code" / "pack").mkdir(parents=True)
    module = entrypoint.partition(":")[0].replace(".", "/")
    place = folder / "code" / module
    place = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    place.write_text(text)
    run = RunConfig(entrypoint=entrypoint, code=Path(code))
    check_code(folder, {"main": WorkloadConfig(run=run)})


@pytest.mark.parametrize(
    "text",
    [
        "def run(batch, ctx): ...",
        "class run: ...",
        "run = make()",
        "run: object = make()",
        "a, (run, *b) = make()",
        "if (run := make()): ...",
        "from other import run",
        "from other import walk as run",
        "import other as run",
        "from other import *",
        "if x:\n    pass\nelse:\n    def run(): ...",
        "try:\n    from fast import run\nexcept ImportError:\n    run = None",
        "with x as run: ...",
        "for run in x: ...",
        "match x:\n    case {'a': 1, **run}: ...",
        "def make():\n    global run\n    run = 1\nmake()",
        "def __getattr__(name): ...",
        "globals()['run'] = 1",
        "import sys\nsetattr(sys.modules[__name__], 'run', 1)",
        "exec(text)",
    ],
)
def test_what_a_module_may_bind_is_not_refused(tmp_path: Path, text: str) -> None:
    check(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "run()",
        "run.x = 1",
        "def other():\n    run = 1",
        "class Job:\n    def run(self): ...",
        "import walk.run",
        "def walk(run): ...",
    ],
)
def test_what_nothing_in_a_module_binds_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"define run at the top level of code/job\.py"):
        check(tmp_path, text)


def test_a_name_that_is_close_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        check(tmp_path, "def run(batch, ctx): ...", "pack:rum")
    assert caught.value.remedy.endswith("code/pack/__init__.py, or did you mean pack:run?")


def test_functions_that_are_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="walk, setup"):
        check(tmp_path, "def walk(batch, ctx): ...\ndef setup(ctx): ...\nx = 1")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("import x\ndef run(batch, ctx:\n", "its line 2, which Python 3."),
        ("x = '\0'", "its text, which Python 3."),
    ],
)
def test_a_module_that_cannot_be_read_is_named(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(tmp_path, text, code="code/job.py")
    assert f"mend code/job.py, {where}" in str(caught.value)
