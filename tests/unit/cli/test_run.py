"""What ``spindown run`` makes of its options; that it runs is in tests/e2e/test_operate.py."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.cli.run import (
    cancel_run,
    draft_run,
    least_gpu_memory,
    needs_by_gpu,
    say_tried,
    status_of,
    without_gpu,
)
from spindown.cli.sender import check_type
from spindown.cli.wait import say_awaited
from spindown.contract.decision import (
    Decision,
    DecisionSummary,
    LaunchRequestRecord,
    Outcome,
    RefusalRecord,
    RequestOutcome,
    ShapeRecord,
)
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.contract.row import DecisionRow
from spindown.control.policy_edit import edit_policy
from spindown.domain.fleet import RequeuedJob, WorkerState
from spindown.domain.offer import Catalogue, InstanceRequirements
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.shape import requirements_of, settle
from spindown.error import BadInput
from spindown.job.submit import Draft
from spindown.ledger import LedgerView
from spindown.reason_text import say_coming, say_next_try
from tests.builders import NOW, a_cpu_type, a_launch, a_lease, a_type, a_worker
from tests.control import WORKLOAD, ControlWorld
from tests.work import WorkWorld

_SOLD = Catalogue(
    taken_at=NOW,
    instance_types={
        one.name: one
        for one in (
            a_type("g6.xlarge", gpu_name="L4", gpu_memory_mib=22888),
            a_type("g6f.large", gpu_name="L4", gpu_memory_mib=2861, gpu_count=0.125),
            a_type("p4d.24xlarge", gpu_name="A100", gpu_memory_mib=40960, gpu_count=8.0),
            a_type("p4de.24xlarge", gpu_name="A100", gpu_memory_mib=81920, gpu_count=8.0),
        )
    },
    offerings={},
    on_demand={},
    reclaim_share={},
)


@pytest.mark.parametrize(("name", "gib"), [("L4", 22), ("l4", 22), ("A100", 40)])
def test_a_gpu_by_name_is_its_memory_at_least(name: str, gib: int) -> None:
    assert least_gpu_memory(name, _SOLD) == gib


@pytest.mark.parametrize(
    ("name", "sold"),
    [pytest.param("H100", _SOLD, id="not sold"), pytest.param("L4", None, id="not read yet")],
)
def test_a_gpu_that_nobody_sells_is_refused(name: str, sold: Catalogue | None) -> None:
    with pytest.raises(BadInput) as refused:
        least_gpu_memory(name, sold)
    assert refused.value.field == "--gpu"


def test_who_names_a_gpu_asks_for_one_at_least() -> None:
    assert needs_by_gpu("L4", None, _SOLD) == {"gpus": 1, "gpu_memory_gib": 22}
    assert needs_by_gpu("L4", 4, _SOLD)["gpus"] == 4
    with pytest.raises(BadInput) as refused:
        needs_by_gpu("L4", 0, _SOLD)
    assert refused.value.field == "--gpus"


def test_a_run_is_judged_by_the_policy_in_force() -> None:
    world = ControlWorld(policy=_POLICY, requirements=_NO_GPU)
    edit_policy(
        WORKLOAD,
        {"types": [{"name": "fresh"}], "requirements_at_most": {"memory_gib": 20}},
        settings=world.ports.settings,
        table=world.ports.table,
    )

    def draft(type_name: str | None, **needs: float) -> Draft:
        asked = Draft(workload=WORKLOAD, batch_id="b", type=type_name, requirements=needs)
        return draft_run(asked, world.ports, options={}, shown={}, is_local=False)

    assert draft("fresh").requirements is None
    assert draft(None, memory_gib=20).requirements == {"memory_gib": 20}
    for type_name, needs in (("large", {}), (None, {"memory_gib": 30})):
        with pytest.raises(BadInput):
            draft(type_name, **needs)


_NO_GPU = InstanceRequirements(gpu_count_min=0.0)
_POLICY = Policy(
    types=(JobType(name="large", needs=JobNeeds(memory_gib=256)), JobType(name="small")),
    requirements_at_most=JobNeeds(memory_gib=512),
)


@pytest.mark.parametrize(
    ("type_name", "needs", "field"),
    [
        pytest.param(None, {"gpus": 1}, "--gpus", id="above the ceiling"),
        pytest.param(None, {"memory_gib": 300}, "--memory", id="larger than what is sold"),
        pytest.param("large", None, "--type", id="a type that nothing sold fits"),
    ],
)
def test_a_run_that_nothing_fits_is_refused_by_its_option(
    type_name: str | None, needs: dict[str, float] | None, field: str
) -> None:
    draft = Draft(workload="lab", batch_id="b", type=type_name, requirements=needs)
    options = {"gpus": "--gpus", "memory_gib": "--memory"}
    told = []
    for is_local in (False, True):
        with pytest.raises(BadInput) as refused:
            check_type(
                draft,
                _POLICY,
                _NO_GPU,
                100,
                sold=[a_cpu_type()],
                options=options,
                is_local=is_local,
            )
        assert refused.value.field == field
        told.append("docs local" in str(refused.value))
    # Where the local market sells too little, its list is named.
    assert told == [False, field != "--gpus"]
    check_type(Draft(workload="lab", batch_id="b", type="small"), _POLICY, _NO_GPU, 100)


def test_an_option_is_refused_in_its_own_words() -> None:
    draft = Draft(workload="lab", batch_id="b", requirements={"vcpus": 99})
    told = []
    for policy in (_SOME_CPU, Policy()):
        with pytest.raises(BadInput) as refused:
            check_type(draft, policy, _NO_GPU, 100, options={"vcpus": "--cpu"})
        assert (refused.value.field, refused.value.value) == ("--cpu", 99)
        told.append(refused.value.remedy)

    above, untyped = told
    assert above.startswith("the most is 2: ")
    assert "[[workload.lab.policy.types]]" in untyped
    assert "message" not in untyped


@pytest.mark.parametrize("amount", [math.inf, math.nan])
def test_a_need_that_is_no_number_is_refused_by_its_option(amount: float) -> None:
    """JSON has no such number, so no message could be made to be judged."""
    draft = Draft(workload="lab", batch_id="b", requirements={"memory_gib": amount})
    for options, field in (
        ({"memory_gib": "--memory"}, "--memory"),
        ({}, "requirements.memory_gib"),
    ):
        with pytest.raises(BadInput) as refused:
            check_type(draft, _POLICY, _NO_GPU, 100, options=options)
        assert refused.value.field == field
        assert "finite number of GiB" in str(refused.value)


def test_a_refusal_names_what_the_person_has_given() -> None:
    asked = {"gpus": 1, "gpu_memory_gib": 80, "memory_gib": 300}
    options = {"gpu_memory_gib": "--gpu", "memory_gib": "--memory"}
    most = JobNeeds(memory_gib=512, gpus=1)
    by_name = Draft(workload="lab", batch_id="b", requirements=asked)
    with pytest.raises(BadInput) as refused:
        check_type(
            by_name,
            replace(_POLICY, requirements_at_most=most),
            _NO_GPU,
            100,
            options=options,
            shown={"gpu_memory_gib": "H100 (80 GiB)"},
        )
    assert (refused.value.field, refused.value.value) == ("--gpu", "H100 (80 GiB)")

    rounded = Draft(workload="lab", batch_id="b", requirements={"memory_gib": 300})
    with pytest.raises(BadInput) as refused:
        check_type(rounded, _POLICY, _NO_GPU, 100, sold=[a_cpu_type()], options=options)
    assert refused.value.value == 300
    # As asked, then as rounded up.
    assert refused.value.remedy.index("300") < refused.value.remedy.index("384,")


_SOME_CPU = Policy(types=(JobType(name="a"),), requirements_at_most=JobNeeds(vcpus=2))


@pytest.mark.parametrize(
    ("needs", "policy", "workload", "vcpus"),
    [
        pytest.param({}, _SOME_CPU, _NO_GPU, 1, id="nothing asked"),
        pytest.param({"memory_gib": 9}, _SOME_CPU, _NO_GPU, 1, id="memory alone"),
        pytest.param({"gpus": 0}, _SOME_CPU, _NO_GPU, 1, id="no GPU in so many words"),
        pytest.param({"vcpus": 2}, _SOME_CPU, _NO_GPU, 2, id="vCPUs"),
        pytest.param({"gpus": 1}, _SOME_CPU, _NO_GPU, None, id="a GPU"),
        pytest.param({"gpu_memory_gib": 9}, _SOME_CPU, _NO_GPU, None, id="its memory"),
        pytest.param({}, _SOME_CPU, InstanceRequirements(), None, id="all its machines have one"),
        pytest.param({}, _POLICY, _NO_GPU, None, id="no message may ask for vCPUs"),
        pytest.param({}, Policy(), _NO_GPU, None, id="no types"),
    ],
)
def test_a_run_that_asks_for_no_gpu_gets_none(
    needs: dict[str, float], policy: Policy, workload: InstanceRequirements, vcpus: int | None
) -> None:
    asked = without_gpu(needs, policy, workload)

    assert asked.get("vcpus") == vcpus
    assert asked | needs == asked
    if vcpus:
        shape = settle("", JobNeeds(vcpus=vcpus), policy).shape
        assert requirements_of(shape, workload).gpu_count_max == 0.0


def a_request(shape: str) -> LaunchRequestRecord:
    pool = f"{shape}.large/us-east-1a/spot"
    return LaunchRequestRecord(
        launch_id=shape,
        pools=(pool,),
        count=1,
        outcome=RequestOutcome.LAUNCHED,
        instances={f"i-{shape}": pool},
        shape=shape,
    )


def a_shape(shape: str) -> ShapeRecord:
    refused = Reason(ReasonCode.POOL_REFUSED, {"refusal": f"no offer of {shape}"})
    return ShapeRecord(shape=shape, visible=1, in_flight=0, workers=0, wanted=1, blocked_by=refused)


def test_a_run_tells_of_no_pool_that_another_was_taken_before() -> None:
    taken, refused, passed_over = (f"g6.xlarge/us-east-1{zone}/spot" for zone in "abc")
    decision = Decision(
        workload="lab",
        at=NOW,
        outcome=Outcome.LAUNCHED,
        summary=DecisionSummary(sizing=Reason(ReasonCode.TO_BE_ROUTED, {"messages": 7})),
        requests=(
            replace(
                a_request(""),
                pools=(taken, refused, passed_over),
                instances={"i-1": taken},
                refusals=(RefusalRecord(pool=refused, kind="capacity", code="C", message=""),),
            ),
        ),
    )

    assert [line.split()[0] for line in say_tried(decision, {""})] == [taken, refused]


def test_a_run_tells_of_no_other_shape() -> None:
    decision = Decision(
        workload="lab",
        at=NOW,
        outcome=Outcome.LAUNCHED,
        summary=DecisionSummary(sizing=Reason(ReasonCode.TO_BE_ROUTED, {"messages": 7})),
        requests=(a_request("c1m2"), a_request("c2m4")),
        shapes=(a_shape("c1m2"), a_shape("c4m8")),
    )

    assert [line.split("/")[0] for line in say_tried(decision, {"c2m4"})] == ["c2m4.large"]
    (why,) = say_tried(decision, {"c4m8"})
    assert "no offer of c4m8" in why
    assert list(say_tried(decision, {"c8m16"})) == []


@pytest.mark.parametrize(
    ("record", "status"),
    [
        ({"result": {"exit_status": 0}}, 0),
        ({"result": {"exit_status": 3}}, 3),
        ({"result": {"exit_status": 3}, "error": "too many files"}, 3),
        ({"result": {"exit_status": 0}, "error": "too many files"}, 1),
        ({"result": {"exit_status": 256}}, 1),
        ({"result": {"exit_status": 256}, "error": "x"}, 1),
        ({"error": "killed"}, 1),
        ({}, 1),
    ],
)
def test_a_run_ends_well_only_if_its_command_did(record: dict[str, Any], status: int) -> None:
    assert status_of(record) == status


def test_who_waits_for_a_run_is_told_for_what() -> None:
    def said(**view: Any) -> str:
        return say_awaited(LedgerView(**view), {"j"}, NOW)

    booting = {"i-1": a_worker("i-1", state=WorkerState.BOOTING)}
    lease = a_lease(job_id="j.00002", instance_id="i-2")
    at = NOW + timedelta(seconds=50)
    job = RequeuedJob(job_id="j", sent_at=NOW, at=NOW, items=1, items_done=0, next_try_at=at)

    assert "worker" in said()
    assert said(workers=booting).startswith("i-1 boots")
    assert "i-2" in said(workers=booting, leases=(lease,))
    held = DecisionRow(at=NOW, digest="d", key="k", outcome=Outcome.HELD)
    assert said(launches={"l": a_launch()}, decision=held) == say_coming(0, 1)
    assert said(workers={"i-1": a_worker("i-1")}, decision=held) != said(decision=held)
    assert said(requeued_jobs={"j": job}) == f"j: {say_next_try(at, NOW)}"


def test_a_run_that_was_over_is_not_said_to_be_cancelled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = WorkWorld()
    done = Manifest(job_id="done", epoch=1, owner="", state=JobState.COMPLETED)
    world.objects.put(manifest_key("done"), encode_manifest(done))

    assert cancel_run(WORKLOAD, "waits", world.ports) is None
    cancelled = capsys.readouterr().err
    end = cancel_run(WORKLOAD, "done", world.ports)

    assert end is not None
    assert end.state is JobState.COMPLETED
    assert capsys.readouterr().err != cancelled.replace("waits", "done")
    # A second cancel finds none that had completed.
    assert cancel_run(WORKLOAD, "waits", world.ports) is None
