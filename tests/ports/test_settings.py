"""What every SettingsStore promises, on Parameter Store as in memory."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import boto3
import pytest

from spindown.aws.wiring import Aws
from spindown.contract.codec import encode
from spindown.contract.settings import (
    DeploymentSettings,
    RegionSettings,
    TemplateRef,
    WorkloadSettings,
    deployment_parameter,
    live_parameter,
    outpost_parameter,
    workload_parameter,
)
from spindown.domain.policy import Policy
from spindown.error import ContractError, NotFound
from spindown.memory import MemoryClock, MemorySettingsStore
from spindown.port import SettingsStore
from tests.ports.real_account import PREFIX, TAG_LIST, TAGS

_names = (f"{PREFIX}-{number}" for number in itertools.count())

OCR = WorkloadSettings(
    name="ocr",
    queue_url="https://sqs/ocr",
    dlq_url="https://sqs/ocr-dlq",
    log_group="/spindown/ocr",
    regions={
        "us-east-1": RegionSettings(
            subnets={"us-east-1a": "subnet-a"},
            templates={"x86_64": TemplateRef(id="lt-1", version="3")},
        )
    },
    policy=Policy(start_within=timedelta(minutes=7)),
)


def _deployment(name: str) -> DeploymentSettings:
    return DeploymentSettings(
        name=name,
        region="us-east-1",
        table=f"{name}-ledger",
        bucket="bucket",
        workloads=("ocr",),
        scaler=f"{name}-scaler",
        budget_per_month=250.0,
        tags=TAGS,
    )


def _in_memory(clock: MemoryClock, name: str) -> SettingsStore:
    return MemorySettingsStore(clock, _deployment(name), {"ocr": OCR})


def _in_ssm(session: boto3.Session, aws: Aws, name: str) -> SettingsStore:
    client = session.client("ssm")
    for parameter, value in (
        (deployment_parameter(name), _deployment(name)),
        (workload_parameter(name, "ocr"), OCR),
    ):
        text = json.dumps(encode(value))
        client.put_parameter(Name=parameter, Type="String", Value=text, Tags=TAG_LIST)
    return aws.settings(name)


@pytest.fixture
def name() -> str:
    return next(_names)


@pytest.fixture(params=["memory", "ssm"])
def store(request: pytest.FixtureRequest, name: str) -> SettingsStore:
    fixture = request.getfixturevalue
    make: dict[str, Callable[[], SettingsStore]] = {
        "memory": lambda: _in_memory(fixture("clock"), name),
        "ssm": lambda: _in_ssm(fixture("session"), fixture("aws"), name),
    }
    return make[str(request.param)]()


def test_describes_the_deployment(store: SettingsStore, name: str) -> None:
    assert store.deployment() == _deployment(name)


def test_describes_a_workload_as_deployed(store: SettingsStore) -> None:
    assert store.workload("ocr") == (OCR, None)
    assert store.history("ocr") in ([], ())


def test_knows_no_other_workload(store: SettingsStore) -> None:
    with pytest.raises(NotFound, match="no workload asr"):
        store.workload("asr")


def test_gives_a_live_edit_with_the_workload(store: SettingsStore) -> None:
    store.put_live("ocr", '{"idle_timeout": "2m"}')
    deployed, edit = store.workload("ocr")

    assert deployed == OCR
    assert edit is not None
    assert (edit.text, edit.version) == ('{"idle_timeout": "2m"}', 1)
    assert edit.edited_at.tzinfo is not None


def test_remembers_every_edit_and_counts_on(store: SettingsStore) -> None:
    store.put_live("ocr", '{"max_workers": 2}')
    store.put_live("ocr", '{"max_workers": 3}')
    assert store.put_live("ocr", "{}") == 3
    assert store.workload("ocr") == (OCR, None)
    assert store.put_live("ocr", '{"max_workers": 4}') == 4

    assert [(edit.version, edit.text) for edit in store.history("ocr")] == [
        (1, '{"max_workers": 2}'),
        (2, '{"max_workers": 3}'),
        (3, "{}"),
        (4, '{"max_workers": 4}'),
    ]
    _, edit = store.workload("ocr")
    assert edit is not None
    assert edit.version == 4


def test_a_live_edit_bears_the_account_s_tags(session: boto3.Session, aws: Aws, name: str) -> None:
    client, tags = session.client("ssm"), {"team": "vision", "cost": "12"}
    told = json.dumps(encode(replace(_deployment(name), tags=tags)))
    client.put_parameter(Name=deployment_parameter(name), Type="String", Value=told, Tags=TAG_LIST)

    versions = [aws.settings(name).put_live("ocr", f'{{"max_workers": {n}}}') for n in (2, 3)]

    found = client.list_tags_for_resource(
        ResourceType="Parameter", ResourceId=live_parameter(name, "ocr")
    )
    assert versions == [1, 2]
    assert {one["Key"]: one["Value"] for one in found["TagList"]} == tags


@pytest.mark.parametrize("tags", [{}, TAGS], ids=["without tags", "with tags"])
def test_a_live_edit_may_be_longer_than_what_is_free(
    session: boto3.Session, aws: Aws, name: str, tags: dict[str, str]
) -> None:
    client, text = session.client("ssm"), json.dumps({"types": ["x" * 6000]})
    told = json.dumps(encode(replace(_deployment(name), tags=tags)))
    client.put_parameter(Name=deployment_parameter(name), Type="String", Value=told, Tags=TAG_LIST)

    aws.settings(name).put_live("ocr", text)

    # The standard tier takes 4,096 characters; an emulator takes any.
    (found,) = client.describe_parameters(
        ParameterFilters=[{"Key": "Name", "Values": [live_parameter(name, "ocr")]}]
    )["Parameters"]
    assert found["Tier"] in {"Intelligent-Tiering", "Advanced"}


def test_a_deployment_that_is_not_there_is_not_found(aws: Aws) -> None:
    with pytest.raises(NotFound, match=f"no deployment {PREFIX}-none"):
        aws.settings(f"{PREFIX}-none").deployment()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("not json", id="no JSON"),
        pytest.param("[]", id="no object"),
        pytest.param("{}", id="nothing in it"),
    ],
)
def test_settings_that_cannot_be_read_say_where(
    session: boto3.Session, aws: Aws, name: str, text: str
) -> None:
    client = session.client("ssm")
    client.put_parameter(Name=deployment_parameter(name), Type="String", Value=text, Tags=TAG_LIST)

    with pytest.raises(ContractError, match=r"deployment|DeploymentSettings"):
        aws.settings(name).deployment()


def test_memory_deploys_under_a_live_edit(clock: MemoryClock) -> None:
    store = MemorySettingsStore(clock, _deployment("d"), {"ocr": OCR}, editor="ada")
    store.put_live("ocr", '{"max_workers": 2}')
    store.deploy(replace(OCR, log_group="/new"))
    deployed, edit = store.workload("ocr")

    assert deployed.log_group == "/new"
    assert edit is not None
    assert edit.edited_by == "ada"


@pytest.mark.parametrize("text", ["", "x" * 8193], ids=["nothing", "more than a parameter holds"])
def test_memory_refuses_what_parameter_store_does(clock: MemoryClock, text: str) -> None:
    store = MemorySettingsStore(clock, _deployment("d"), {"ocr": OCR})
    with pytest.raises(ContractError, match="8,192 bytes"):
        store.put_live("ocr", text)
    assert store.workload("ocr") == (OCR, None)


def test_adds_outposts_and_says_which_cannot_be_read(
    session: boto3.Session, aws: Aws, name: str
) -> None:
    away = RegionSettings(
        subnets={"us-west-2b": "subnet-b"},
        templates={"x86_64": TemplateRef(id="lt-9", version="1")},
    )
    spread = replace(OCR, outposts=("eu-west-1", "us-west-2"))
    store = _in_ssm(session, aws, name)
    session.client("ssm").put_parameter(
        Name=workload_parameter(name, "ocr"),
        Type="String",
        Value=json.dumps(encode(spread)),
        Overwrite=True,
    )
    session.client("ssm", region_name="us-west-2").put_parameter(
        Name=outpost_parameter(name, "ocr"), Type="String", Value=json.dumps(encode(away))
    )

    found, _ = store.workload("ocr")

    assert found.regions == {**OCR.regions, "us-west-2": away}
    assert list(found.unread) == ["eu-west-1"]
