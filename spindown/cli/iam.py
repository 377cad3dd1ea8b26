"""``spindown iam``: the least rights of people, as policies to attach."""

import json
import re
from typing import Annotated

import typer

from spindown import config as configuration
from spindown.cli import option
from spindown.cli.group import make_group
from spindown.error import BadInput
from spindown.operate.right import Whose, policy

app = make_group("Print what somebody must be allowed to do, as a policy of IAM.")

#: What a number of an account looks like.
_ACCOUNT = re.compile("[0-9]{12}")

Account = Annotated[
    str | None, typer.Option(help="Number of the AWS account; default: that you are logged in to.")
]


@app.command("deployer")
def deployer(*, config: option.ConfigFile = option.CONFIG_FILE, account: Account = None) -> None:
    """Print the policy of who runs `spindown deploy` and `spindown destroy`."""
    _print("deployer", _read(config, account))


@app.command("operator")
def operator(*, config: option.ConfigFile = option.CONFIG_FILE, account: Account = None) -> None:
    """Print the policy of who runs all commands but deploys."""
    _print("operator", _read(config, account))


@app.command("runner")
def runner(
    workloads: option.Workloads = None,
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    account: Account = None,
) -> None:
    """Print what an operator needs besides for `spindown run`: to choose what code runs."""
    _print("runner", _read(config, account, workloads))


@app.command("submitter")
def submitter(
    workloads: option.Workloads = None,
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    account: Account = None,
) -> None:
    """Print the policy of who runs `spindown submit` alone, for some workloads or all."""
    _print("submitter", _read(config, account, workloads))


@app.command("verifier")
def verifier(*, config: option.ConfigFile = option.CONFIG_FILE, account: Account = None) -> None:
    """Print what an operator needs besides for `spindown verify`: alarms, experiments."""
    _print("verifier", _read(config, account))


def _read(config: option.ConfigFile, account: str | None, named: list[str] | None = None) -> Whose:
    loaded = configuration.load(config, named="--config")
    unknown = sorted(set(named or ()) - set(loaded.workload))
    if unknown:
        known = ", ".join(loaded.workload)
        raise BadInput("workload", unknown[0], f"name one of the deployment's: {known}")
    if account is None:
        from spindown.cli.session import reach  # noqa: PLC0415 - slow

        account = reach(loaded.deployment.region).account().caller().account
    elif not _ACCOUNT.fullmatch(account):
        raise BadInput("--account", account, "write its twelve digits")
    return Whose(
        deployment=loaded.deployment.name,
        account=account,
        regions=tuple(loaded.deployment.outposts),
        workloads=tuple(named or loaded.workload),
        qualifier=loaded.deployment.qualifier,
        key_arn=loaded.deployment.kms_key_arn,
    )


def _print(role: str, whose: Whose) -> None:
    print(json.dumps(policy(role, whose), indent=2))
