"""The deployment that spindown.toml describes, as a CDK app of stacks.

Context keys choose what spindown.toml does not say: ``config``, the path of another spindown.toml;
``bundle``, which is ``lambda`` or ``host``; ``synthesizer``, which is ``default`` or
``cli-credentials``. The latter deploys with the rights of the caller, without the roles that
``cdk bootstrap`` creates.
"""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from aws_cdk import App, CliCredentialsStackSynthesizer, DefaultStackSynthesizer

from spindown import config
from spindown.config import Config, PolicyConfig
from spindown.error import ConfigError
from spindown.infra.construct import add_stacks
from spindown.infra.control.bundle import Target
from spindown.infra.core import CoreStack
from spindown.infra.flag import FLAGS
from spindown.infra.iam.limit import check_roles
from spindown.infra.parameter import check_parameters

T = TypeVar("T")

_TARGETS = {target.value: target for target in Target}
_SYNTHESIZERS = {
    "default": DefaultStackSynthesizer,
    "cli-credentials": CliCredentialsStackSynthesizer,
}


def synthesise() -> None:
    """Write the templates where the CDK command line expects them (raises ConfigError)."""
    app = App(context=FLAGS)
    describe(app)
    synthesise_app(app, load_config(app))


def synthesise_app(app: App, loaded: Config) -> None:
    """Synthesise, and check limits of CloudFormation, IAM and SSM (raises ConfigError)."""
    workloads, regions = len(loaded.workloads), len(loaded.deployment.outpost)
    try:
        assembly = app.synth()
    except RuntimeError as exc:
        if "TooManyResourcesInStack" not in str(exc):
            raise
        remedy = "divide them among deployments: a CloudFormation stack has at most 500 resources"
        raise ConfigError("workload", f"{workloads} workloads", remedy) from exc
    sizes = {
        stack.stack_name: Path(stack.template_full_path).stat().st_size for stack in assembly.stacks
    }
    check_sizes(sizes, workloads=workloads)
    templates = [stack.template for stack in assembly.stacks]
    check_parameters(templates)
    check_roles(templates, workloads=workloads, regions=regions)


#: Bytes of a template (AWS CloudFormation User Guide, "Understand CloudFormation quotas": 1 MB).
TEMPLATE_BYTES_MAX = 1_000_000


def check_sizes(sizes: Mapping[str, int], *, workloads: int) -> None:
    """Check that no template has more bytes than CloudFormation takes (raises ConfigError).

    CDK only warns, and the stack that is too large would be refused after others are deployed.
    """
    for stack, size in sizes.items():
        if size > TEMPLATE_BYTES_MAX:
            raise ConfigError(
                "workload",
                f"{workloads} workloads",
                "divide them among deployments, or give them shorter names: the template of "
                f"{stack} would have {size:,} bytes, and CloudFormation takes "
                f"{TEMPLATE_BYTES_MAX:,}",
            )


def load_config(app: App) -> Config:
    """Return the content of the spindown.toml that the context names (raises ConfigError)."""
    return config.load(_path(app), named="context config")


def _path(app: App) -> Path:
    return Path(app.node.try_get_context("config") or "spindown.toml")


def describe(app: App) -> CoreStack:
    """Add the stacks of the deployment to ``app``, return the core stack (raises ConfigError)."""
    loaded, target = load_config(app), _choose(app, "bundle", _TARGETS)
    return add_stacks(
        app,
        suit_this_machine(loaded) if target is Target.HOST else loaded,
        root=_path(app).resolve().parent,
        target=target,
        make_synthesizer=partial(
            _choose(app, "synthesizer", _SYNTHESIZERS),
            qualifier=loaded.deployment.bootstrap_qualifier,
        ),
    )


#: What differs on this machine, where nothing is billed and a minute of ticks takes two seconds:
#: any work launches, and workers soon hear that a job was cancelled or a workload drained.
_HERE: Mapping[str, Any] = {"scale_up_threshold": 1, "heartbeat_interval": timedelta(seconds=5)}


def suit_this_machine(loaded: Config) -> Config:
    """Return the same with other defaults of policies; what they say themselves stays."""
    return loaded.model_copy(
        update={
            "workload": {
                name: workload.model_copy(update={"policy": _suit(workload.policy)})
                for name, workload in loaded.workload.items()
            }
        }
    )


def _suit(policy: PolicyConfig) -> PolicyConfig:
    unsaid = {key: each for key, each in _HERE.items() if key not in policy.model_fields_set}
    return policy.model_copy(update=unsaid)


def _choose(app: App, key: str, choices: Mapping[str, T]) -> T:
    """Return what a context key chooses; the first choice where the key is not given."""
    chosen = app.node.try_get_context(key) or next(iter(choices))
    if chosen not in choices:
        raise ConfigError(f"context {key}", chosen, f"write one of {', '.join(choices)}")
    return choices[chosen]
