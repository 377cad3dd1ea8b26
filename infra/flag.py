"""The feature flags of CDK that the templates are made with: all that this CDK recommends."""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

#: Context of an app of our own; where the stacks are part of another app, its own flags hold.
FLAGS: Mapping[str, Any] = json.loads(files(__package__).joinpath("flag.json").read_text("utf-8"))
