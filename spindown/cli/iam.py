"""``spindown iam``: the least rights of people, as policies to attach."""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from spindown import config as configuration
from spindown.cli import option
from spindown.cli.group import make_group
from spindown.config.deployment import USUAL_QUALIFIER
from spindown.error import AccessDenied, BadInput, NoCredentials, NotFound
from spindown.installed import cdk_command
from spindown.operate import deploy_rights
from spindown.operate.iam_policy import Whose, policies

app = make_group("Print what somebody must be allowed to do, as a policy of IAM.")

#: What a number of an account looks like.
_ACCOUNT = re.compile("[0-9]{12}")

Account = Annotated[
    str | None, typer.Option(help="Number of the AWS account; default: that you are logged in to.")
]
Bucket = Annotated[
    str | None,
    typer.Option(help="The deployment's bucket; default: read from the account, if deployed."),
]


@app.command("deployer")
def deployer(*, config: option.ConfigFile = option.CONFIG_FILE, account: Account = None) -> None:
    """Print the policy of who runs `spindown deploy` and `spindown destroy`."""
    _print("deployer", _read(config, account))


@app.command("operator")
def operator(
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    account: Account = None,
    bucket: Bucket = None,
) -> None:
    """Print the policy of who runs all commands but deploys."""
    _print("operator", _find_bucket(_read(config, account), account, bucket))


@app.command("runner")
def runner(
    workloads: option.Workloads = None,
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    account: Account = None,
    bucket: Bucket = None,
) -> None:
    """Print what an operator needs besides for `spindown run`: to choose what code runs."""
    _print("runner", _find_bucket(_read(config, account, workloads), account, bucket))


@app.command("submitter")
def submitter(
    workloads: option.Workloads = None,
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    account: Account = None,
    bucket: Bucket = None,
) -> None:
    """Print the policy of who runs `spindown submit` alone, for some workloads or all."""
    _print("submitter", _find_bucket(_read(config, account, workloads), account, bucket))


@app.command("verifier")
def verifier(
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    account: Account = None,
    bucket: Bucket = None,
) -> None:
    """Print what an operator needs besides for `spindown verify`: alarms, experiments."""
    _print("verifier", _find_bucket(_read(config, account), account, bucket))


@app.command("execution")
def execution(*, config: option.ConfigFile = option.CONFIG_FILE, account: Account = None) -> None:
    """Print the policies of the role by which CloudFormation deploys, by their names."""
    whose = _read(config, account)
    if whose.qualifier == USUAL_QUALIFIER:
        sys.stderr.write(
            "spindown: other apps of this account may deploy by the same role: before you give it "
            "these policies alone, set `bootstrap_qualifier` and bootstrap with that\n"
        )
    print(json.dumps(deploy_rights.execution(whose, _synthesise(config)), indent=2))


@app.command("boundary")
def boundary(*, config: option.ConfigFile = option.CONFIG_FILE, account: Account = None) -> None:
    """Print a permissions boundary of all roles that a deploy makes."""
    whose = _read(config, account)
    print(json.dumps(deploy_rights.boundary(whose, _synthesise(config)), indent=2))


def _synthesise(config: Path) -> list[deploy_rights.Template]:
    """Return the templates of a deploy; of functions' code there is none (raises BadInput)."""
    node, _ = cdk_command()
    # What CDK's command line tells an app, with no stack whose code is packed.
    context = {"config": str(config.resolve()), "aws:cdk:bundling-stacks": []}
    with TemporaryDirectory() as folder:
        told = {
            "CDK_OUTDIR": folder,
            "CDK_CONTEXT_JSON": json.dumps(context),
            "JSII_NODE": node,
            # A deploy validates its templates; here that would take as long as all the rest.
            "CDK_VALIDATION": "false",
        }
        done = subprocess.run(
            [sys.executable, "-m", "spindown.infra.app"],
            check=False,
            env={**os.environ, **told},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        if done.returncode:
            sys.stderr.write(done.stderr)
            raise typer.Exit(1)
        return [json.loads(one.read_bytes()) for one in Path(folder).glob("*.template.json")]


def _read(config: option.ConfigFile, account: str | None, named: list[str] | None = None) -> Whose:
    loaded = configuration.load(config, named="--config")
    unknown = sorted(set(named or ()) - set(loaded.workload))
    if unknown:
        known = ", ".join(loaded.workload)
        raise BadInput("workload", unknown[0], f"name one of the deployment's: {known}")
    if account is None:
        from spindown.cli.session import reach  # noqa: PLC0415 - slow

        try:
            account = reach(loaded.deployment.region).account().caller().account
        except NoCredentials as exc:
            remedy = "log in to AWS, or give --account 111122223333"
            raise NoCredentials("credentials", None, remedy) from exc
    elif not _ACCOUNT.fullmatch(account):
        raise BadInput("--account", account, "write its twelve digits")
    return Whose(
        deployment=loaded.deployment.name,
        account=account,
        regions=tuple(loaded.deployment.regions),
        workloads=tuple(named or loaded.workload),
        qualifier=loaded.deployment.qualifier,
        role_path=loaded.deployment.role_path or "/",
        role_name_prefix=loaded.deployment.role_name_prefix or "",
        boundary_arn=_boundary_arn(loaded.deployment.permissions_boundary, account),
        key_arns=[one.kms_key_arn for one in loaded.deployment.regions.values() if one.kms_key_arn],
        image_parameters=sorted(
            {
                path
                for one in loaded.workload.values()
                for path in one.image.parameters.values()
                if not path.startswith("/aws/service/")
            }
        ),
        archive_key_arns=sorted({key for one in loaded.workload.values() for key in one.kms_keys}),
    )


def _boundary_arn(named: str | None, account: str) -> str | None:
    if named is None or named.startswith("arn:"):
        return named
    return f"arn:aws:iam::{account}:policy/{named}"


def _find_bucket(whose: Whose, account: str | None, bucket: str | None) -> Whose:
    """Name the bucket: as given, or as the account says in which the caller is logged in."""
    if bucket is None and account is None:
        from spindown.cli.session import reach  # noqa: PLC0415 - slow

        with suppress(NotFound, AccessDenied):
            bucket = reach(whose.regions[0]).settings(whose.deployment).deployment().bucket
    if bucket is None:
        sys.stderr.write(
            f"spindown: the bucket is not known yet, so {whose.objects()[0]} stands for it, which "
            "others of the account may match: print it again after the deploy\n"
        )
    return replace(whose, bucket=bucket)


def _print(role: str, whose: Whose) -> None:
    found = policies(role, whose)
    (first, *more) = found.values()
    # What has no room in one is printed by the names to give them.
    print(json.dumps(found if more else first, indent=2))
