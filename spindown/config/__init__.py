"""spindown.toml: read, validated, and turned into domain values.

Durations are text with a unit ("90s", "10m", "1h30m"), money is USD as a number, sizes of
memory are GiB. Whatever is wrong is said in one sentence (ConfigError) that names the key,
the value and the remedy. Defaults of the policy live in ``spindown.domain.policy`` alone.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from spindown.config.check import check_policy, odd_types
from spindown.config.deployment import DeploymentConfig, NetworkConfig, RegionConfig
from spindown.config.duration import format_clock, format_duration, parse_duration
from spindown.config.function import add_functions
from spindown.config.image import ImageConfig
from spindown.config.pricing import PricingConfig
from spindown.config.run import RunConfig
from spindown.config.schema import (
    Config,
    DraftConfig,
    PolicyConfig,
    RequirementsConfig,
    WorkloadConfig,
)
from spindown.config.validation_error import translate
from spindown.domain.offer import InstanceRequirements
from spindown.domain.policy import Policy
from spindown.error import ConfigError

__all__ = [
    "Config",
    "DeploymentConfig",
    "DraftConfig",
    "ImageConfig",
    "NetworkConfig",
    "PolicyConfig",
    "PricingConfig",
    "RegionConfig",
    "RequirementsConfig",
    "RunConfig",
    "WorkloadConfig",
    "check_policy",
    "format_clock",
    "format_duration",
    "load",
    "merge_policy",
    "odd_types",
    "parse",
    "parse_duration",
    "parse_requirements",
]


def load(path: Path, form: type[Config] = Config, *, named: str = "spindown.toml") -> Config:
    """Read and validate spindown.toml and the files of its ``functions`` (raises ConfigError).

    Args:
        path: the file.
        form: ``DraftConfig`` where nothing is deployed: its zones may be missing.
        named: what names the file to a person, as an option does.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as exc:
        reason = exc.strerror or "unreadable"
        remedy = f"give a readable file ({reason})"
        if isinstance(exc, FileNotFoundError):
            remedy += ", or write one by `spindown init`"
        raise ConfigError(named, str(path), remedy) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(named, str(path), "save it as UTF-8") from exc
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        quotes = "; text and durations stand in quotes" if _is_of_value(exc) else ""
        raise ConfigError(named, str(path), f"fix its TOML: {exc}{quotes}") from exc
    return parse(add_functions(document, path.resolve().parent), form)


def _is_of_value(error: tomllib.TOMLDecodeError) -> bool:
    """Tell whether a value is wrong, or something after a value."""
    return str(error).startswith(("Invalid value", "Expected newline"))


def parse(document: Mapping[str, Any], form: type[Config] = Config) -> Config:
    """Validate a parsed spindown.toml (raises ConfigError for the first thing wrong)."""
    try:
        config = form.model_validate(document)
    except ValidationError as exc:
        raise translate(exc, form, document) from None
    for name, workload in config.workload.items():
        try:
            workload.to_policy()
        except ConfigError as exc:
            raise ConfigError(
                f"workload.{name}.policy.{exc.field}", exc.value, exc.remedy
            ) from None
    return config


def merge_policy(base: Policy, edit: Mapping[str, Any]) -> Policy:
    """Return ``base`` with a live edit (keys and values as in TOML); raises ConfigError."""
    try:
        changes = PolicyConfig.model_validate(edit)
    except ValidationError as exc:
        raise translate(exc, PolicyConfig, edit, elsewhere=_deployed_keys()) from None
    return check_policy(changes.apply_to(base))


def _deployed_keys() -> Mapping[str, str]:
    """Return the keys of other tables, which no live edit changes -> what to do."""
    tables: Mapping[str, type[BaseModel]] = {
        "[deployment]": DeploymentConfig,
        "[workload.NAME.run]": RunConfig,
        "[workload.NAME.image]": ImageConfig,
        "[workload.NAME.requirements]": RequirementsConfig,
    }
    return {
        key: f"change it below {table} of spindown.toml and deploy"
        for table, form in tables.items()
        for key in form.model_fields
    }


def parse_requirements(table: Mapping[str, Any]) -> InstanceRequirements:
    """Return what one ``[workload.NAME.requirements]`` asks for (raises ConfigError)."""
    try:
        return RequirementsConfig.model_validate(table).to_domain()
    except ValidationError as exc:
        raise translate(exc, RequirementsConfig, table) from None
