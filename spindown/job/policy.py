"""The policy in force, as reconcile has written it down for workers, who cannot read settings."""

from datetime import timedelta

from spindown.contract.codec import decode, from_json
from spindown.contract.row import POLICY, PolicyRow, control_partition
from spindown.domain.idle import idle_timeout
from spindown.domain.learning import Knowledge
from spindown.domain.policy import Policy
from spindown.domain.worker_lifecycle import Standing
from spindown.error import ContractError
from spindown.port import SETTINGS_FOR, Key, Table

#: Other code must have been the deployed one for so long before a worker goes by it: a scaler
#: that has not read its settings anew may tell of the old one meanwhile.
OUTDATED_FOR = SETTINGS_FOR + timedelta(minutes=1)


def read_standing(table: Table, workload: str, known: Standing | None = None) -> Standing:
    """Return the policy in force; one that cannot be read leaves ``known`` in force."""
    row = table.get(Key(partition=control_partition(workload), sort=POLICY)) or {}
    try:
        stored = decode(PolicyRow, row)
        policy = decode(Policy, from_json("policy", stored.effective))
    except ContractError:
        return known or Standing(policy=Policy(), idle_timeout=_idle(Policy(), None))
    return Standing(
        policy=policy,
        idle_timeout=_idle(policy, stored.idle_timeout),
        code_digest=stored.code_digest,
    )


def read_code_version(table: Table, workload: str) -> str:
    """Return the version of the code that is deployed; "": that is not known."""
    row = table.get(Key(partition=control_partition(workload), sort=POLICY)) or {}
    return str(row.get("code_version") or "")


def _idle(policy: Policy, learned: timedelta | None) -> timedelta:
    if policy.idle_timeout is None and learned is not None:
        return learned
    return idle_timeout(Knowledge(), policy)
