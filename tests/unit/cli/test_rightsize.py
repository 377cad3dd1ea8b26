"""What `rightsize` says to a person and to a program."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from spindown.cli.explain.rightsize import render_rightsizing, rightsizing_to_json
from spindown.cli.render.saving import AT_WORK, PAID
from spindown.config import load, parse
from spindown.contract.learned_size import sizes_key
from spindown.control.usage import compact
from spindown.domain.offer import InstanceRequirements
from spindown.domain.policy import JobNeeds, Rightsize
from spindown.domain.reason import ReasonCode
from spindown.operate.rightsize import Rightsizing
from spindown.operate.rightsize import rightsize as compare
from tests.control import WORKLOAD, ControlWorld
from tests.unit.operate.test_rightsize import a_typed_world, asking_for_much, keep


def told(world: ControlWorld, function_file: Path | None = None) -> list[str]:
    parts = render_rightsizing(found_in(world), function_file)
    return [part for part in parts if isinstance(part, str)]


def found_in(world: ControlWorld) -> Rightsizing:
    return compare(WORKLOAD, world.ports, days=14)


def test_says_what_to_write_and_what_it_saves() -> None:
    world = asking_for_much()
    keep(world)

    said = told(world)

    assert said[0] == "classify: 1 job in the last 14 days, 1m on g6.xlarge, $0.0083 at work"
    # The bill counts more.
    counted = said.pop(1)
    assert AT_WORK in counted
    assert PAID in counted
    # One job is little to go by.
    assert said[1].startswith("classify: 1 job so far, too few")
    assert said[2] == "GPUs computed 80 % of the time, with 20 % of their memory."
    assert said[3].startswith("What has enough is g4dn.xlarge/us-west-2a/spot at $")
    assert "(expected, not measured)" in said[3]
    assert said[4:] == [
        "To ask for what is enough, in [workload.classify.requirements]; then deploy:",
        "    gpu_memory_gib_min = 6",
    ]


def test_what_it_tells_to_write_is_a_setting() -> None:
    world = asking_for_much(vcpus_min=16, memory_mib_min=64 * 1024)
    keep(world)
    lines = "\n".join(line.strip() for line in told(world) if line.startswith("    "))

    text = f"""
        deployment = {{ name = "d", region = "us-east-1", zones = ["us-east-1a"] }}
        [workload.classify.run]
        entrypoint = "a:b"
        code = "c"
        [workload.classify.requirements]
        {lines}
    """

    asked = parse(tomllib.loads(text)).workload[WORKLOAD].requirements
    assert (asked.vcpus_min, asked.memory_gib_min, asked.gpu_memory_gib_min) == (2, 4, 6)


def test_a_function_s_decorator_takes_what_it_tells(tmp_path: Path) -> None:
    world = asking_for_much(vcpus_min=16, memory_mib_min=64 * 1024)
    keep(world)
    said = told(world, Path("digest.py"))
    options = "\n".join(line for line in said if line.startswith("    "))
    code = f"import spindown\n@spindown.function(\n{options}\n)\ndef digest(text): ...\n"
    (tmp_path / "digest.py").write_text(code, encoding="utf-8")
    (tmp_path / "spindown.toml").write_text(
        'functions = ["digest.py"]\n[deployment]\n'
        'name = "d"\nregion = "us-east-1"\nzones = ["us-east-1a"]\n',
        encoding="utf-8",
    )

    loaded = load(tmp_path / "spindown.toml")

    asked = loaded.workload["digest"].requirements
    assert (asked.vcpus_min, asked.memory_gib_min, asked.gpu_memory_gib_min) == (2, 4, 6)
    assert loaded.function_file("digest") == Path("digest.py")
    assert any("digest.py" in line for line in said)


def test_says_that_another_gpu_may_do() -> None:
    world = asking_for_much(gpu_names=frozenset({"L4"}))
    keep(world, gpu_mean=5.0)

    assert told(world)[-1] == "and take out gpu_names and instance_types, if they are there."


def test_says_what_more_memory_costs_where_it_nearly_ran_out() -> None:
    world = ControlWorld()
    keep(world, instance_type="g4dn.xlarge", vram_gib=16.0, vram_mean=14.4, vram_max=15.84)

    said = told(world)

    assert said[4].startswith("What has enough is g6.xlarge/us-west-2a/spot at $")
    assert said[4].endswith(" for 1,000 items.")
    assert " more than g4dn.xlarge/us-west-2a/spot at $" in said[4]
    assert said[-1] == "    gpu_memory_gib_min = 20"


def test_says_what_asking_for_less_saves_with_the_same_offer() -> None:
    world = ControlWorld(requirements=InstanceRequirements(memory_mib_min=16 * 1024))
    keep(world)

    said = told(world)

    assert said[4].endswith("stays the best; others could stand in for it when it is dry.")
    assert said[-1] == "    memory_gib_min = 4"


def test_enough_jobs_say_that_nothing_is_to_be_changed() -> None:
    world = ControlWorld()
    keep(world)
    first = told(world)
    for number in range(2, 6):
        keep(world, job_id=f"job-{number}")

    assert (first[-1].endswith("nothing to change."), "too few" in " ".join(first)) == (False, True)
    assert told(world)[-1] == "What is required fits what was used: nothing to change."


def test_says_that_nothing_was_seen() -> None:
    world = asking_for_much()
    (said,) = told(world)
    assert said.startswith(
        "classify: no job has left a record in the last 14 days; workers write them"
    )

    keep(world, memory_max=None)
    assert told(world)[-1].startswith("Nothing was seen of what they used")


def test_programs_get_the_same() -> None:
    world = asking_for_much()
    keep(world)

    said: dict[str, Any] = json.loads(json.dumps(rightsizing_to_json(found_in(world))))

    assert said["jobs"] == 1
    assert [one["advised"] for one in said["extents"]] == [None, None, 6]
    assert said["then"]["offer"]["instance_type"]["name"] == "g4dn.xlarge"
    assert said["saving"] > 0


def test_a_row_for_each_type_and_its_reasons() -> None:
    world = a_typed_world(rightsize=Rightsize.APPLY)
    found = found_in(world)
    parts = list(render_rightsizing(found))
    (table,) = (
        part for part in parts if isinstance(part, Table) and part.columns[0].header == "type"
    )

    assert list(table.columns[0].cells) == ["scan", "idle"]
    assert list(table.columns[2].cells) == ["32 GiB", "-"]
    # Its reason, and how its jobs come to machines.
    assert sum(str(part).startswith("scan: ") for part in parts) == 2
    told = rightsizing_to_json(found)["sizings"][0]
    assert (told["name"], told["reasons"][0]["code"]) == ("scan", ReasonCode.SIZE_LOWERED.value)


def test_of_few_jobs_no_size_is_advised_that_they_exceed() -> None:
    world = a_typed_world()
    keep(world, type="idle", job_id="k", shape="c0m1", memory_max=2.04)
    found = found_in(world)
    idle = replace(found.sizings[1], asked=JobNeeds(memory_gib=1.0))
    found = replace(found, sizings=(idle,))
    said = [part for part in render_rightsizing(found) if isinstance(part, str)]

    assert (idle.advised, idle.dollars_advised) == (JobNeeds(), None)
    assert any("2.04 GiB, more than the 1 GiB" in line for line in said)
    assert any("idle: 1 job so far, too few" in line for line in said)
    assert not any("nothing to change" in line for line in said)


@pytest.mark.parametrize("mode", Rightsize)
def test_says_what_becomes_of_what_is_learned(mode: Rightsize) -> None:
    said = told(a_typed_world(rightsize=mode))

    assert any(f'rightsize is "{mode}" for scan, idle' in line for line in said)


def test_cents_of_real_jobs_are_no_zero() -> None:
    world = asking_for_much()
    keep(world, seconds=0.5)

    assert told(world)[0].endswith("$0.00007 at work")


@pytest.mark.parametrize("mode", [Rightsize.ADVISE, Rightsize.OFF])
def test_what_is_not_in_force_is_not_told_as_done(mode: Rightsize) -> None:
    found = found_in(a_typed_world(rightsize=Rightsize.APPLY))
    sizing = replace(found.sizings[0], hours={6: 48})
    said = [
        part
        for part in render_rightsizing(replace(found, sizings=(sizing,), mode=mode))
        if "Monday" in str(part)
    ]

    assert [str(part).startswith("scan: only advised: ") for part in said] == [True]
    assert not found_in(a_typed_world(rightsize=mode)).sizings[0].reasons


def test_jobs_without_a_type_are_the_same_in_a_table() -> None:
    world = a_typed_world()
    keep(world, job_id="plain", shape="c0m32", memory_max=None)
    day = world.now.date()
    assert compact(WORKLOAD, day, world.objects, declared=["scan"])
    plain = found_in(world).sizings[-1]

    assert (plain.name, plain.jobs) == ("", 1)
    # Nobody has seen what it used.
    assert plain.used.memory_gib is None


def test_jobs_without_a_declared_type_have_rows() -> None:
    world = a_typed_world()
    keep(world, job_id="plain", shape="c0m32")
    keep(world, type="gone", job_id="old", shape="c0m32")
    found = found_in(world)

    assert [(each.name, each.jobs, each.is_declared) for each in found.sizings] == [
        ("scan", 6, True),
        ("idle", 0, True),
        ("gone", 1, False),
        ("", 1, False),
    ]
    (table,) = (part for part in render_rightsizing(found) if isinstance(part, Table))
    assert list(table.columns[0].cells)[2:] == ["gone (not declared)", "(no type)"]
    assert any("Of gone (not declared), (no type) nothing is learned" in x for x in told(world))


def test_the_span_of_what_a_dispatch_costs_is_named() -> None:
    assert any("the machines of the last 14 days" in line for line in told(a_typed_world()))


def test_says_that_nothing_is_decided_yet() -> None:
    world = a_typed_world()
    world.objects.delete(sizes_key(WORKLOAD))

    assert any("scan: nothing is advised yet" in line for line in told(world))
