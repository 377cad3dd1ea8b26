"""A first spindown.toml is valid but for what only the account knows, and init finds that out."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest

from spindown import config
from spindown.cli.account import describe
from spindown.cli.init import CODE, fill_in, init
from spindown.domain.offer import QUOTA_CODES, InstanceRequirements
from spindown.domain.shape import settle
from spindown.error import BadInput, ConfigError
from spindown.memory import MemoryClock, MemoryMarket
from spindown.operate.doctor.survey import survey
from tests.builders import NOW, a_type

REGION = "us-west-2"


def a_market() -> MemoryMarket:
    market = MemoryMarket(MemoryClock(NOW))
    for name, zones in (
        ("g6.xlarge", ("us-west-2a", "us-west-2b")),
        ("g5.xlarge", ("us-west-2b",)),
    ):
        market.offer(a_type(name), region=REGION, zones=zones, on_demand=1.0, spot=0.4)
    market.offer(
        a_type("g4dn.xlarge"), region=REGION, zones=("us-west-2c",), on_demand=0.5, spot=0.2
    )
    return market


def test_what_it_writes_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project := tmp_path / "My GPU work!").mkdir()
    monkeypatch.chdir(project)

    init()

    written = config.load(Path("spindown.toml"))
    assert written.deployment.name == "my-gpu-work"
    assert written.deployment.zones == ("us-east-1a", "us-east-1b")
    assert written.workload["main"].to_policy().max_workers == 4
    assert Path("code/main.py").read_text(encoding="utf-8") == CODE
    assert json.loads(Path("cdk.json").read_text())["app"] == "spindown-app"
    ignored = Path(".gitignore").read_text().split()
    assert {"/.spindown/", "/cdk.out/"} <= set(ignored)


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_it_takes_the_region_that_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "eu-west-3")

    init(config=(path := tmp_path / "spindown.toml"))

    deployment = config.load(path).deployment
    assert (deployment.region, deployment.zones) == ("eu-west-3", ("eu-west-3a", "eu-west-3b"))


def test_it_takes_the_region_of_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aws").write_text("[profile work]\nregion = eu-north-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws"))
    monkeypatch.setenv("AWS_PROFILE", "work")

    init(config=(path := tmp_path / "spindown.toml"))

    assert config.load(path).deployment.region == "eu-north-1"


@pytest.mark.parametrize("region", ["cn-north-1", "us-esat-1", 'us-east-1"'])
def test_a_region_nobody_wrote_is_named_by_where_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str
) -> None:
    monkeypatch.setenv("AWS_REGION", region)

    with pytest.raises(BadInput, match="--region") as caught:
        init(config=tmp_path / "spindown.toml")

    assert (caught.value.field, caught.value.value) == ("AWS_REGION", region)
    init(config=tmp_path / "spindown.toml", region="eu-west-1")


def test_a_configuration_that_cannot_be_read_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "gone")

    init(config=(path := tmp_path / "spindown.toml"))

    assert config.load(path).deployment.region == "us-east-1"
    told = capsys.readouterr().err
    assert "gone" in told
    assert "--region" in told


def test_its_workload_to_verify_can_do_without_gpu(tmp_path: Path) -> None:
    init(config=(path := tmp_path / "spindown.toml"))
    head, _, rest = path.read_text(encoding="utf-8").partition("# [workload.verify]\n")
    example = "\n".join(line.removeprefix("# ") for line in rest.splitlines())
    without = example.replace("gpu_count_min = 1", "gpu_count_min = 0")
    path.write_text(f"{head}[workload.verify]\n{without}")

    verify = config.load(path).workload["verify"]

    assert verify.run.verify
    assert verify.requirements.gpu_count_min == 0


@pytest.fixture(autouse=True)
def no_region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no configuration of this machine name a region."""
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def test_its_example_of_types_is_one_once_uncommented(tmp_path: Path) -> None:
    init(config=(path := tmp_path / "spindown.toml"))
    text = path.read_text(encoding="utf-8")
    head, _, rest = text.partition("# [[workload.main.policy.types]]\n")
    block, _, tail = rest.partition("\n\n")
    example = "\n".join(line.removeprefix("# ") for line in block.split("\n"))
    path.write_text(f"{head}[[workload.main.policy.types]]\n{example}\n\n{tail}")

    policy = config.load(path).workload["main"].to_policy()

    assert [one.name for one in policy.types] == ["small", "large"]
    assert policy.requirements_at_most.memory_gib == 128
    assert not any(settle(one.name, None, policy).rejected for one in policy.types)


A_FUNCTION = "import spindown\n\n\n@spindown.function\ndef {name}(item): ...\n"


def test_functions_are_workloads_and_nothing_is_edited(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(A_FUNCTION.format(name=name))
    path = tmp_path / "spindown.toml"

    init(config=path, functions=[tmp_path / "one.py"])
    first = path.read_text()
    init(config=path, functions=[tmp_path / "two.py", tmp_path / "one.py"])

    assert set(config.load(path).workload) == {"one", "two"}
    assert path.read_text() == first.replace('["one.py"]', '["one.py", "two.py"]')
    assert not (tmp_path / "code").exists()


def test_functions_come_into_a_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(A_FUNCTION.format(name="one"))
    path = tmp_path / "spindown.toml"
    init(config=path)
    first = path.read_text()

    init(config=path, functions=[tmp_path / "one.py"])

    assert set(config.load(path).workload) == {"main", "one"}
    assert path.read_text().replace('functions = ["one.py"]\n\n', "") == first


def test_a_file_without_functions_leaves_all_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "one.py").touch()
    path = tmp_path / "spindown.toml"

    with pytest.raises(ConfigError, match=r"decorate a function of it with @spindown\.function"):
        init(config=path, functions=[tmp_path / "one.py"])

    assert not path.exists()


@pytest.mark.parametrize(
    "lines",
    [
        '"functions" = []\n',
        'functions = [  # ] of them\n    "two.py",\n]\n',
        'note = """\n[table]\n"""\n',
        "functions = 5\n",
    ],
)
def test_a_file_written_in_an_odd_way_is_left_as_it_is(tmp_path: Path, lines: str) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(A_FUNCTION.format(name=name))
    path = tmp_path / "spindown.toml"
    init(config=path)
    text = lines + path.read_text()
    path.write_text(text)

    with pytest.raises(BadInput):
        init(config=path, functions=[tmp_path / "one.py"])

    assert path.read_text() == text


def test_a_region_with_signs_of_toml_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="region"):
        init(config=tmp_path / "spindown.toml", region='us-east-1"\nx=1')


def test_another_name_of_the_file_is_known_to_cdk(tmp_path: Path) -> None:
    init(config=tmp_path / "batch.toml", region="eu-west-1")

    assert config.load(tmp_path / "batch.toml").deployment.zones == ("eu-west-1a", "eu-west-1b")
    context = json.loads((tmp_path / "cdk.json").read_text())["context"]
    assert context == {"config": "batch.toml"}


@pytest.mark.parametrize("name", ["cdk.json", ".gitignore"])
def test_what_is_there_already_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")

    init(config=tmp_path / "spindown.toml")

    assert (tmp_path / name).read_text() == "mine"


def test_prints_for_programs_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spindown.toml"

    init(config=path, as_json=True)

    assert json.loads(capsys.readouterr().out) == {"config": str(path), "survey": None}


def test_code_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()

    init(config=tmp_path / "spindown.toml")

    assert list((tmp_path / "code").iterdir()) == []


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "spindown.toml"
    path.write_text("mine", encoding="utf-8")

    with pytest.raises(BadInput, match="give --from-account to fill in"):
        init(config=path)

    assert path.read_text(encoding="utf-8") == "mine"


def test_a_region_that_cannot_be_is_refused_and_nothing_written(tmp_path: Path) -> None:
    path = tmp_path / "spindown.toml"

    with pytest.raises(BadInput, match=r"--region is 'us east': write a region"):
        init(config=path, region="us east")

    assert not path.exists()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "spindown.toml"
    path.write_text("[deployment", encoding="utf-8")

    with pytest.raises(BadInput) as caught:
        init(config=path, from_account=True)

    assert str(caught.value).startswith(f"--config is '{path}': fix its TOML: ")


def test_a_file_that_cannot_be_written_is_named_with_its_option(tmp_path: Path) -> None:
    path = tmp_path / "none" / "spindown.toml"

    with pytest.raises(BadInput) as caught:
        init(config=path)

    remedy = "name a file that can be written (No such file or directory)"
    assert str(caught.value) == f"--config is '{path}': {remedy}"


def test_what_to_do_next_can_be_run_as_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my project").mkdir()
    path = tmp_path / "my project" / "spindown.toml"

    init(config=path)

    line = capsys.readouterr().out.splitlines()[-1].partition(": ")[2]
    assert shlex.split(line) == ["spindown", "init", "--from-account", "--config", str(path)]


def test_zones_are_those_that_offer_what_fits() -> None:
    newer = InstanceRequirements(instance_types=frozenset({"g6.xlarge", "g5.xlarge"}))

    found = survey(REGION, [newer], a_market())

    assert found.zones == {
        "us-west-2a": ("g6.xlarge",),
        "us-west-2b": ("g5.xlarge", "g6.xlarge"),
    }
    assert found.empty == ("us-west-2c",)


def test_what_fits_any_workload_counts() -> None:
    each = [
        InstanceRequirements(instance_types=frozenset({name}))
        for name in ("g5.xlarge", "g4dn.xlarge")
    ]

    assert sorted(survey(REGION, each, a_market()).zones) == ["us-west-2b", "us-west-2c"]


def test_a_small_quota_comes_with_its_code_and_request() -> None:
    market = a_market()
    for name, vcpus in (("G/Spot", 0.0), ("G/OnDemand", 64.0), ("P/Spot", 0.0)):
        market.limit(QUOTA_CODES[name], vcpus, region=REGION)

    said = "\n".join(describe(survey(REGION, [InstanceRequirements()], market)))

    assert "Quota G/Spot (L-3819A6DF): 0 vCPUs" in said
    assert (
        "aws service-quotas request-service-quota-increase --service-code ec2 "
        "--quota-code L-3819A6DF --desired-value 32 --region us-west-2"
    ) in said
    assert "Quota G/OnDemand (L-DB2E81BA): 64 vCPUs" in said
    assert said.count("request-service-quota-increase") == 1
    assert "P/Spot" not in said


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        pytest.param(
            '[deployment]\nname = "a"\n[workload.x]\nzones = [1]\n',
            '[deployment]\nregion = "eu-west-1"\nzones = ["eu-west-1a", "eu-west-1b"]\nname = "a"\n'
            "[workload.x]\nzones = [1]\n",
            id="both are missing",
        ),
        pytest.param(
            '[deployment]\nregion = "us-east-1" # here\n'
            'zones = [\n  "us-east-1a", # one\n]\n\n[x]\n',
            '[deployment]\nregion = "eu-west-1" # here\n'
            'zones = ["eu-west-1a", "eu-west-1b"]\n\n[x]\n',
            id="both are there",
        ),
        pytest.param(
            "[deployment]\n# zones = []    # why\n",
            '[deployment]\nregion = "eu-west-1"\nzones = ["eu-west-1a", "eu-west-1b"]  # why\n',
            id="one as a comment",
        ),
        pytest.param(
            "# nothing\n",
            '[deployment]\nregion = "eu-west-1"\nzones = ["eu-west-1a", "eu-west-1b"]\n\n'
            "# nothing\n",
            id="no table",
        ),
        pytest.param(
            '[deployment]\nzones = ["a"]\n[deployment.outpost.us-west-2]\nzones = ["b"]\n',
            '[deployment]\nregion = "eu-west-1"\nzones = ["eu-west-1a", "eu-west-1b"]\n'
            '[deployment.outpost.us-west-2]\nzones = ["b"]\n',
            id="another table has the same key",
        ),
    ],
)
def test_a_file_is_filled_in_and_otherwise_left_as_it_is(text: str, filled: str) -> None:
    zones = ["eu-west-1a", "eu-west-1b"]

    once = fill_in(text, region="eu-west-1", zones=zones)

    assert once == filled
    assert fill_in(once, region="eu-west-1", zones=zones) == once
    assert tomllib.loads(once)["deployment"]["zones"] == zones


def test_the_draft_that_is_filled_in_keeps_every_comment(tmp_path: Path) -> None:
    init(config=tmp_path / "spindown.toml")
    draft = (tmp_path / "spindown.toml").read_text(encoding="utf-8")

    filled = fill_in(draft, region="us-east-1", zones=["us-east-1a"])

    changed = [line for line in filled.splitlines() if line not in draft.splitlines()]
    assert len(changed) == 1
    assert json.dumps(["us-east-1a"]) in changed[0]
    assert "more zones, cheaper items" in changed[0]
