"""The policy in force: as deployed, with the current live edit, if that is valid.

An edit that is not valid changes nothing: the last good one stays in force, and the refusal is
shown. ``spindown.config`` validates edits. It is imported only when there is one, so that the
functions start faster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from spindown.contract import row as rows
from spindown.contract.codec import decode, encode, from_json, to_json
from spindown.contract.row import PolicyRow
from spindown.contract.settings import PARAMETER_BYTES_MAX, WorkloadSettings
from spindown.domain.policy import Policy
from spindown.error import BadInput, ConfigError, ContractError
from spindown.ledger import Ledger
from spindown.port import NO_EDIT, ControlPorts, Key, LiveEdit, SettingsStore, Table

#: Limits in dollars; None: no limit.
_LIMITS = ("max_price_per_hour", "max_price_per_gpu_hour", "max_dollars_per_hour")
#: What stays of an edit that does not fit what is deployed any more.
_KEPT = frozenset({*_LIMITS, "max_workers", "warm_workers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePolicy:
    """The policy that a tick follows, and where it came from."""

    policy: Policy
    #: Version of the live edit in force; 0: as deployed.
    version: int = 0
    #: Why the present edit is not in force; "": it is, or there is none.
    refusal: str = ""
    #: What the ledger should remember of it.
    row: PolicyRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key whose value in force is not the deployed one."""

    key: str
    deployed: object
    in_force: object


def effective_policy(
    settings: WorkloadSettings, edit: LiveEdit | None, known: PolicyRow
) -> EffectivePolicy:
    """Return the deployed policy with the live edit, or with the last good one.

    Args:
        settings: the workload as deployed.
        edit: the live edit as stored, valid or not.
        known: what the ledger remembers of the last good edit.
    """
    if edit is None:
        return EffectivePolicy(policy=settings.policy, row=PolicyRow(edits=known.edits))
    try:
        policy = _merge(settings, edit.text)
    except BadInput as exc:
        return _last_good(settings, known, str(exc))
    row = PolicyRow(
        text=edit.text, good=policy_text(policy), version=edit.version, edits=known.edits
    )
    return EffectivePolicy(policy=policy, version=edit.version, row=row)


def current_policy(workload: str, ports: ControlPorts) -> tuple[WorkloadSettings, Policy]:
    """Return a workload as deployed, and its policy in force, read anew (raises NotFound)."""
    settings, edit = ports.settings.workload(workload)
    row = ports.table.get(Key(rows.control_partition(workload), rows.POLICY)) or {}
    try:
        known = decode(PolicyRow, row)
    except ContractError:
        known = PolicyRow()
    return settings, effective_policy(settings, edit, known).policy


def edit_policy(
    workload: str,
    changes: Mapping[str, Any],
    *,
    clear: Iterable[str] = (),
    settings: SettingsStore,
    table: Table,
) -> EffectivePolicy:
    """Change keys of the live policy, or give them back to the deployed one; validated first.

    If the stored edit is invalid and the change does not repair it, the change is applied to the
    last valid edit, which is the one in force; if that fits no more what is deployed, to its limits
    alone. Parameter Store writes without a condition: an edit
    that came between the read and the write is found by its version, and changed in turn.

    Args:
        workload: whose policy.
        changes: keys and values as in spindown.toml.
        clear: keys that shall follow the deployed policy again.
        settings: where the edit is stored.
        table: where the tick sees that there is an edit.

    Raises:
        ConfigError: the policy would not be valid; nothing has changed.
    """
    deployed, _ = settings.workload(workload)
    ledger = Ledger(table, workload)
    cleared = frozenset(clear)

    def change(before: Mapping[str, Any]) -> tuple[str, Policy]:
        kept = {k: v for k, v in {**before, **changes}.items() if k not in cleared}
        # First, since TOML has values that JSON lacks.
        policy = _merge_keys(deployed, kept)
        text = to_json(dict(sorted(kept.items())))
        if len(text) > PARAMETER_BYTES_MAX:
            remedy = f"shorten or deploy its lists: it has at most {PARAMETER_BYTES_MAX:,} bytes"
            raise ConfigError("live policy", f"an edit of {len(text):,} bytes", remedy)
        return text, policy

    before, version = _newest(settings.history(workload)), 0
    while True:
        stored = before.text if before else NO_EDIT
        refusal: ConfigError | None = None
        try:
            text, policy = change(_parse(stored))
        except ConfigError as exc:
            if not _is_valid(deployed, stored):
                text, policy = change(_still_good(deployed, ledger.read().policy))
            elif version:
                # Our edit has replaced another that came between, and does not go with it.
                refusal, text, policy = exc, stored, deployed.policy
            else:
                raise
        _check_regions(changes, policy, deployed)
        if text == stored == NO_EDIT and not version:
            break
        seen = max(before.version if before else 0, version)
        version = settings.put_live(workload, text)
        ledger.write(ledger.add(rows.POLICY, {"edits": 1}))
        if version == seen + 1:
            if refusal is not None:
                raise refusal
            break
        before = _newest(e for e in settings.history(workload) if e.version < version)
    return EffectivePolicy(policy=policy, row=PolicyRow(text=text))


def _newest(edits: Iterable[LiveEdit]) -> LiveEdit | None:
    return max(edits, key=lambda each: each.version, default=None)


def _check_regions(changes: Mapping[str, Any], policy: Policy, deployed: WorkloadSettings) -> None:
    """Refuse a region that is none of the deployment's: nothing would be launched.

    What an earlier edit has named, and a deploy removed, holds up no change of another key.
    """
    known = deployed.deployed_regions
    unknown = (policy.regions or frozenset()) - known
    if "regions" in changes and unknown:
        remedy = f"name regions of the deployment: {', '.join(sorted(known))}"
        raise ConfigError("regions", min(unknown), remedy)


def stored_keys(edit: LiveEdit | None) -> frozenset[str]:
    """Return the keys that a live edit names, known or not; none if it cannot be read."""
    try:
        return frozenset(_parse(edit.text) if edit else ())
    except ConfigError:
        return frozenset()


def differences(deployed: Policy, in_force: Policy) -> tuple[Difference, ...]:
    """Return the keys in which the policy in force differs from the deployed one."""
    return tuple(
        Difference(
            key=f.name, deployed=getattr(deployed, f.name), in_force=getattr(in_force, f.name)
        )
        for f in fields(Policy)
        if getattr(deployed, f.name) != getattr(in_force, f.name)
    )


def _last_good(deployed: WorkloadSettings, known: PolicyRow, refusal: str) -> EffectivePolicy:
    row = replace(known, refusal=refusal)
    try:
        policy = _merge(deployed, known.text) if known.text else deployed.policy
    except BadInput:
        # A deploy has moved the policy under it. A limit that was lowered stays so.
        policy = _lower(deployed, known)
    return EffectivePolicy(policy=policy, version=known.version, refusal=refusal, row=row)


def _lower(deployed: WorkloadSettings, known: PolicyRow) -> Policy:
    """Return the last good policy, or what is deployed if its types have no machines any more.

    It has the lower limits of both: whoever lowered one is heard.
    """
    base = deployed.policy
    try:
        kept = good = decode(Policy, from_json("policy", known.good)) if known.good else base
    except ContractError:
        return base
    try:
        _check_types(good, deployed)
    except ConfigError:
        kept = base
    most = min(good.max_workers, base.max_workers)
    limits = {
        name: min(given)
        for name in _LIMITS
        if (given := [x for x in (getattr(good, name), getattr(base, name)) if x is not None])
    }
    return replace(kept, max_workers=most, warm_workers=min(kept.warm_workers, most), **limits)


@lru_cache(maxsize=8)
def policy_text(policy: Policy) -> str:
    """Return the JSON of the codec's row of a policy, as the ledger keeps it."""
    return to_json(encode(policy))


def _still_good(deployed: WorkloadSettings, known: PolicyRow) -> Mapping[str, Any]:
    """Return the keys of the last good edit; if a deploy has moved the policy under it, its limits.

    The other keys are in force no more, and hold up no drain.
    """
    text = known.text or NO_EDIT
    if _is_valid(deployed, text):
        return _parse(text)
    try:
        stored = _parse(text)
    except ConfigError:
        return {}
    return {key: value for key, value in stored.items() if key in _KEPT}


def _is_valid(deployed: WorkloadSettings, text: str) -> bool:
    try:
        _merge(deployed, text)
    except BadInput:
        return False
    return True


def _merge(deployed: WorkloadSettings, text: str) -> Policy:
    return _merge_keys(deployed, _parse(text))


def _merge_keys(deployed: WorkloadSettings, edit: Mapping[str, Any]) -> Policy:
    from spindown.config import merge_policy  # noqa: PLC0415 - pydantic only when there is an edit

    policy = merge_policy(deployed.policy, edit)
    _check_types(policy, deployed)
    return policy


def _check_types(policy: Policy, deployed: WorkloadSettings) -> None:
    """Refuse types that a deploy would refuse, or that need one."""
    from spindown.config import odd_types  # noqa: PLC0415 - as above

    names = [each.name for each in policy.types]
    if bool(names) is not bool(deployed.policy.types):
        # Without types there is no function that routes, nor leave to make a queue.
        raise ConfigError("types", names, "declare the first, or remove the last, by a deploy")
    if deployed.name in names:
        raise ConfigError("types", names, f"give {deployed.name} another name than the workload's")
    for remedy in odd_types(policy, deployed.requirements, deployed.run.root_volume_gib):
        raise ConfigError("types", names, remedy)


def _parse(text: str) -> dict[str, Any]:
    try:
        edit = from_json("live policy", text)
    except ContractError as exc:
        raise ConfigError("live policy", text, "write a JSON object") from exc
    if not isinstance(edit, dict):
        raise ConfigError("live policy", text, "write a JSON object")
    return edit
