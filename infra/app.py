"""The entry point of CDK: ``python -m infra.app``, which cdk.json names."""

import os
import shutil
import sys
from pathlib import Path

from spindown.error import BadInput, ConfigError

#: The environment variable that tells aws-cdk-lib which Node to run.
_NODE = "JSII_NODE"


def main() -> int:
    """Synthesise the deployment; where its input is wrong, print one sentence that says why."""
    try:
        choose_node()
        # Imported late, since aws-cdk-lib starts Node.
        from infra.deployment import synthesise  # noqa: PLC0415

        synthesise()
    except BadInput as exc:
        sys.stderr.write(f"spindown: {exc}\n")
        return 1
    return 0


def choose_node() -> None:
    """Choose the Node that is installed beside this Python, unless one is chosen already."""
    beside = Path(sys.executable).parent / "node"
    if beside.exists():
        os.environ.setdefault(_NODE, str(beside))
    node = os.environ.get(_NODE, "node")
    if shutil.which(node) is None:
        raise ConfigError(_NODE, node, "run make setup, or install Node.js 22 or newer")


if __name__ == "__main__":
    sys.exit(main())
