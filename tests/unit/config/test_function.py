"""Files whose functions are workloads: what is read of them, and what is refused."""

import os
from pathlib import Path

import pytest

from spindown import config
from spindown.config.archive import pack_workload
from spindown.config.function import read_functions
from spindown.error import ConfigError

HEAD = '[deployment]\nname = "lab"\nregion = "us-east-1"\nzones = ["us-east-1a"]\n'


def a_file(folder: Path, text: str, name: str = "job.py") -> Path:
    path = folder / name
    path.write_text(f"import spindown\nfrom spindown import function as fn\n{text}", "utf-8")
    return path


def a_project(folder: Path, *, rest: str = "") -> Path:
    path = folder / "spindown.toml"
    path.write_text(f'functions = ["job.py"]\n{HEAD}{rest}', encoding="utf-8")
    return path


def test_a_decorated_function_is_a_workload(tmp_path: Path) -> None:
    a_file(
        tmp_path,
        "@spindown.function(\n"
        '    gpu="L4", gpu_memory_gib=20, vcpus=4, memory_gib=8.5, requirements=["numpy>=2"],\n'
        '    run={"item_timeout": "1h"}, policy={"max_workers": 3},\n'
        ")\ndef read_page(page): ...\n"
        "@fn\ndef other(page): ...\n"
        "def plain(page): ...\n",
    )

    found = config.load(a_project(tmp_path)).workload

    assert set(found) == {"read-page", "other"}
    run, wanted = found["read-page"].run, found["read-page"].requirements
    assert (run.entrypoint, str(run.code), run.requirements) == (
        "job:read_page",
        "job.py",
        ("numpy>=2",),
    )
    assert (run.batch_size, run.item_timeout.total_seconds()) == (1, 3600)
    assert (wanted.gpu_names, wanted.gpu_memory_gib_min) == (frozenset({"L4"}), 20)
    assert (wanted.vcpus_min, wanted.memory_gib_min) == (4, 8.5)
    assert found["read-page"].to_policy().max_workers == 3
    assert found["other"].requirements.is_without_gpu
    assert found["other"].run.requirements is None


def test_a_file_is_read_and_never_run(tmp_path: Path) -> None:
    path = a_file(
        tmp_path,
        "import a_package_that_nobody_has\n"
        f"open({str(tmp_path / 'run')!r}, 'w')\n"
        "@spindown.function()\ndef job(item): ...\n",
    )

    assert set(read_functions(path, "job.py")) == {"job"}
    assert not (tmp_path / "run").exists()


def test_a_module_of_a_package_has_its_whole_name(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").touch()
    path = a_file(tmp_path, "@fn\ndef job(item): ...\n", "lab/job.py")

    assert read_functions(path, "lab/job.py")["job"]["run"]["entrypoint"] == "lab.job:job"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def job(item): ...", "functions is 'job.py': decorate a function of it"),
        ("def job(:", "functions is 'job.py': mend its line 3, which Python"),
        (
            "def f():\n    @fn\n    def job(item): ...",
            "job.py:4 job is 'not at the top level': move",
        ),
        (
            "class A:\n    @fn\n    def job(self, item): ...",
            "job.py:4 job is 'not at the top level'",
        ),
        ("@fn\nasync def job(item): ...", "job.py:3 job is 'async': write it with def"),
        (
            "@fn(vcpus=CORES)\ndef job(item): ...",
            "job.py:3 job: vcpus is 'CORES': write the value itself: a deploy reads the file",
        ),
        (
            "@fn(**HOW)\ndef job(item): ...",
            "job.py:3 job is '**HOW': write each option by its name",
        ),
        (
            "@fn('L4')\ndef job(item): ...",
            "job.py:3 job is \"'L4'\": write each option by its name",
        ),
        (
            "@fn(gpu='\\ud800')\ndef job(item): ...",
            "job.py:3 job: gpu is \"'\\\\ud800'\": write it in whole characters",
        ),
        (
            f"@fn\ndef job(item): ...\nx = {'1+' * 100_000}1",
            "functions is 'job.py': mend its text, which Python",
        ),
        (f"@fn(gpu={'-' * 400}1)\ndef job(item): ...", "job.py:3 job: gpu is "),
        ("@fn(gpus=1)\ndef job(item): ...", "job.py:3 job: gpus is 1: did you mean gpu?"),
        ("@fn(name='No')\ndef job(item): ...", "job.py:3 job: name is 'No': write a name of a-z"),
        (
            "@fn(run={'command': ['x']})\ndef job(item): ...",
            "job.py:3 job: run.command is ['x']: leave it out: the function says it",
        ),
        (
            "@fn\ndef job(item): ...\n@fn(name='job')\ndef other(item): ...",
            "job.py:5 other is 'job': give it another name: the file has one of this",
        ),
        (
            "@fn(policy={'max_workerz': 1})\ndef job(item): ...",
            "workload.job.policy.max_workerz is 1: did you mean max_workers?",
        ),
    ],
)
def test_what_could_not_run_is_refused_in_one_sentence(
    tmp_path: Path, text: str, sentence: str
) -> None:
    a_file(tmp_path, text)

    with pytest.raises(ConfigError) as caught:
        config.load(a_project(tmp_path))

    assert str(caught.value).startswith(sentence)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.py")

    with pytest.raises(ConfigError, match=r"functions is 'job\.py'"):
        config.load(a_project(tmp_path))


def test_a_name_that_nothing_imports_is_refused(tmp_path: Path) -> None:
    path = a_file(tmp_path, "@fn\ndef job(item): ...\n", "job.v2.py")

    with pytest.raises(ConfigError, match=r"functions is 'job\.v2\.py'"):
        read_functions(path, "job.v2.py")


def test_a_link_to_a_file_is_that_file(tmp_path: Path) -> None:
    a_file(tmp_path, "@fn\ndef job(item): ...\n", "real.py")
    (tmp_path / "job.py").symlink_to("real.py")

    found = config.load(a_project(tmp_path)).workload["job"]

    assert pack_workload(tmp_path, "job", found)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"functions is 'job\.py': name a Python file"):
        config.load(a_project(tmp_path))


def test_two_workloads_have_no_name_in_common(tmp_path: Path) -> None:
    a_file(tmp_path, "@fn\ndef job(item): ...\n")

    with pytest.raises(ConfigError, match=r"functions is 'job\.py': give its function job another"):
        config.load(a_project(tmp_path, rest="[workload.job.run]\nfolders = true\n"))
