"""The policy in force, as the scaler has written it down for workers, who cannot read settings."""

from datetime import timedelta

from spindown.contract.codec import decode, from_json
from spindown.contract.row import POLICY, PolicyRow, control_partition
from spindown.domain.idle import timeout_heard
from spindown.domain.policy import Policy
from spindown.domain.shape import of_dispatch
from spindown.domain.worker_lifecycle import Standing
from spindown.error import ContractError
from spindown.port import SETTINGS_FOR, Key, Table

#: Other code must have been the deployed one for so long before a worker goes by it: a scaler
#: that has not read its settings anew may tell of the old one meanwhile.
OUTDATED_FOR = SETTINGS_FOR + timedelta(minutes=1)


def read_standing(
    table: Table, workload: str, known: Standing | None = None, *, shape: str = ""
) -> Standing:
    """Return the policy in force; one that cannot be read leaves ``known`` in force.

    Args:
        table: the ledger.
        workload: whose policy.
        known: what a worker goes by so far.
        shape: of the worker; "": the workload has no types.
    """
    row = table.get(Key(partition=control_partition(workload), sort=POLICY)) or {}
    try:
        stored = decode(PolicyRow, row)
        policy = decode(Policy, from_json("policy", stored.effective))
    except ContractError:
        followed = of_dispatch(Policy(), shape)
        return known or Standing(
            policy=Policy(),
            idle_timeout=timeout_heard(None, followed),
            dispatch=followed.dispatch,
        )
    followed = of_dispatch(policy, shape)
    return Standing(
        policy=policy,
        idle_timeout=timeout_heard(stored.idle_timeout, followed),
        code_digest=stored.code_digest,
        dispatch=followed.dispatch,
    )


def read_code_version(table: Table, workload: str) -> str:
    """Return the version of the code that is deployed; "": that is not known."""
    row = table.get(Key(partition=control_partition(workload), sort=POLICY)) or {}
    return str(row.get("code_version") or "")
