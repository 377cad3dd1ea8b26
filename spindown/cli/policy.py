"""``spindown policy``: read and change the policy while the system runs."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Annotated, Any

import typer

from spindown.cli import option
from spindown.cli.explain.cost import say_accepted
from spindown.cli.group import make_group
from spindown.cli.render.line import print_aside, print_line
from spindown.cli.render.screen import open_console
from spindown.cli.render.table import make_table
from spindown.cli.session import Session, open_session
from spindown.config import format_clock, format_duration
from spindown.config.schema import NONE_IS
from spindown.contract.codec import encode
from spindown.control.policy_edit import (
    EffectivePolicy,
    differences,
    edit_policy,
    effective_policy,
    stored_keys,
)
from spindown.domain.policy import JobNeeds, JobType, Policy, Rung, WarmSpan
from spindown.error import BadInput
from spindown.operate.cost import accept_cost
from spindown.port import LiveEdit

app = make_group("Read and change the policy of a running workload.")

Settings = Annotated[
    list[str], typer.Argument(help="key=value as in spindown.toml, for example idle_timeout=2m.")
]


@app.command("show")
def show(
    workload: option.Workload,
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Print every key of the policy in force."""
    session = open_session(config, deployment=deployment, local=local)
    effective = _effective(session, workload)
    _warn_of_refusal(effective)
    if as_json:
        print(json.dumps(encode(effective.policy)))
        return
    for field in fields(Policy):
        print_line(spell_setting(effective.policy, field.name))


@app.command("set")
def change(
    workload: option.Workload,
    settings: Settings,
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Change keys now. An invalid value changes nothing."""
    session = open_session(config, deployment=deployment, local=local)
    changes = dict(_read_setting(text) for text in settings)
    session.workload(workload)
    edit_policy(workload, changes, settings=session.settings, table=session.table)
    _print_keys(session, workload, list(changes), as_json=as_json)


@app.command("reset")
def reset(
    workload: option.Workload,
    keys: Annotated[list[str], typer.Argument(help="Keys that return to the deployed value.")],
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Return keys to their deployed values."""
    session = open_session(config, deployment=deployment, local=local)
    session.workload(workload)
    # An edit written by hand may have unknown keys; reset must be able to remove them.
    known = {field.name for field in fields(Policy)} | stored_keys(session.edit(workload))
    for key in keys:
        if key not in known:
            raise BadInput("key", key, "name a key that `spindown policy show` lists")
    edit_policy(workload, {}, clear=keys, settings=session.settings, table=session.table)
    _print_keys(session, workload, [key for key in keys if hasattr(Policy, key)], as_json=as_json)


@app.command("diff")
def diff(
    workload: option.Workload,
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Show where the policy in force differs from the deployed one."""
    session = open_session(config, deployment=deployment, local=local)
    deployed = session.workload(workload)
    effective = _effective(session, workload)
    _warn_of_refusal(effective)
    found = differences(deployed.policy, effective.policy)
    if as_json:
        print(json.dumps([encode(entry) for entry in found]))
        return
    table = make_table("key", "deployed", "in force")
    for entry in found:
        table.add_row(entry.key, _spell(entry.deployed), _spell(entry.in_force))
    open_console().print(table if found else "The policy in force is the one deployed.")


@app.command("history")
def history(
    workload: option.Workload,
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """List past live edits and accepted costs, oldest first."""
    session = open_session(config, deployment=deployment, local=local)
    session.workload(workload)
    edits = session.settings.history(workload)
    dated = [(edit.edited_at, encode(edit), _say_edit(edit)) for edit in edits]
    accepted = session.ledger(workload).read().accepted
    dated += [(each.at, encode(each), say_accepted(each)) for each in accepted]
    for _, row, words in sorted(dated, key=lambda each: each[0]):
        if as_json:
            print(json.dumps(row))
        else:
            print_line(words)
    if not dated and not as_json:
        print_line(f"{workload}: nothing yet: no live edit, and no cost was accepted")


def _say_edit(edit: LiveEdit) -> str:
    return f"{edit.edited_at:%Y-%m-%d %H:%M:%S} UTC  {edit.version}  {edit.text}"


@app.command("accept-cost")
def accept(
    workload: option.Workload,
    *,
    cost: Annotated[
        float | None,
        typer.Option(
            min=1e-9, max=1e6, help="USD of an item. Not given: what it costs by the alarm."
        ),
    ] = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Accept what an item costs: it becomes the usual cost, and the cost alarm ends."""
    session = open_session(config, deployment=deployment, local=local)
    accepted = accept_cost(
        workload,
        ledger=session.ledger(workload),
        policy=_effective(session, workload).policy,
        by=session.aws.account().caller().arn,
        now=session.aws.clock.now(),
        dollars=cost,
    )
    if as_json:
        print(json.dumps(encode(accepted)))
    else:
        print_line(say_accepted(accepted))


def _effective(session: Session, workload: str) -> EffectivePolicy:
    deployed, edit = session.workload(workload), session.edit(workload)
    return effective_policy(deployed, edit, session.ledger(workload).read().policy)


def _print_keys(session: Session, workload: str, keys: Sequence[str], *, as_json: bool) -> None:
    """Print what is in force for some keys."""
    policy = _effective(session, workload).policy
    if as_json:
        row = encode(policy)
        print(json.dumps({key: row[key] for key in keys}))
        return
    for key in keys:
        print_line(spell_setting(policy, key))


def _warn_of_refusal(effective: EffectivePolicy) -> None:
    if effective.refusal:
        why = effective.refusal
        print_aside(f"the last valid edit is in force, because the live one is invalid: {why}")


def _read_setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key:
        raise BadInput("setting", text, "write it as key=value")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def spell_setting(policy: Policy, key: str) -> str:
    """Return one key of a policy as spindown.toml writes it."""
    value = getattr(policy, key)
    return f"{key} = {_spell(NONE_IS.get(key) if value is None else value)}"


def _spell(value: object) -> str:
    """Return a value as spindown.toml writes it; a comment if it is not set."""
    if isinstance(value, JobType):
        own = {"name": value.name, "dispatch": value.dispatch}
        return _spell_keys({**own, **_fields_of(value.needs)})
    if isinstance(value, Rung | JobNeeds):
        return _spell_keys(_fields_of(value))
    if isinstance(value, WarmSpan):
        spelled = {f.name: _spell(getattr(value, f.name)) for f in fields(WarmSpan)}
        spelled |= {name: f'"{format_clock(getattr(value, name))}"' for name in ("start", "end")}
        return "{ " + ", ".join(f"{k} = {v}" for k, v in spelled.items()) + " }"
    if isinstance(value, tuple | frozenset):
        spelt = map(_spell, value)
        return f"[{', '.join(spelt if isinstance(value, tuple) else sorted(spelt))}]"
    if isinstance(value, timedelta):
        return f'"{format_duration(value)}"'
    return "# not set: learned, or no limit" if value is None else json.dumps(value)


def _fields_of(value: Rung | JobNeeds) -> dict[str, object]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


def _spell_keys(keys: Mapping[str, object]) -> str:
    """Return a table in one line, without what is not set."""
    return "{ " + ", ".join(f"{k} = {_spell(v)}" for k, v in keys.items() if v is not None) + " }"
