"""What a text for people may name in backticks: keys of spindown.toml and our own commands."""

import re
from collections.abc import Iterator

from pydantic import BaseModel

from spindown.cli.app import COMMANDS, load
from spindown.config.deployment import DeploymentConfig
from spindown.config.image import ImageConfig
from spindown.config.run import RunConfig
from spindown.config.schema import PolicyConfig, RequirementsConfig, WorkloadConfig

#: Tables of spindown.toml that a text may name a key of.
_TABLES: tuple[type[BaseModel], ...] = (
    DeploymentConfig,
    ImageConfig,
    PolicyConfig,
    RequirementsConfig,
    RunConfig,
    WorkloadConfig,
)


def strangers(text: str) -> list[str]:
    """Return what a text has in backticks and is neither a setting nor a command of ours."""
    settings = {key for table in _TABLES for key in table.model_fields}
    commands = set(_commands())
    return [
        quoted
        for quoted in re.findall(r"`([^`]+)`", text)
        if quoted not in settings and not _begins_with_command(quoted, commands)
    ]


def _begins_with_command(quoted: str, commands: set[str]) -> bool:
    words = quoted.split()
    return words[0] == "spindown" and (
        " ".join(words[1:2]) in commands or " ".join(words[1:3]) in commands
    )


def _commands() -> Iterator[str]:
    for name in COMMANDS:
        yield name
        yield from (f"{name} {inner}" for inner in getattr(load(name), "commands", ()))
