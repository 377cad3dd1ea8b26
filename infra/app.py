"""The entry point of CDK: ``python -m spindown.infra.app``, which cdk.json names."""

import os
import shutil
import sys
from collections.abc import Sequence

from spindown.error import BadInput, ConfigError
from spindown.installed import NotInstalled, cdk_command

#: The environment variable that tells aws-cdk-lib which Node to run.
_NODE = "JSII_NODE"


def main() -> int:
    """Synthesise the deployment; where its input is wrong, print one sentence that says why."""
    try:
        refuse_arguments(sys.argv[1:])
        choose_node()
        # Imported late, since aws-cdk-lib starts Node.
        from spindown.infra.deployment import synthesise  # noqa: PLC0415

        synthesise()
    except (BadInput, NotInstalled) as exc:
        sys.stderr.write(f"spindown: {exc}\n")
        return 1
    return 0


def refuse_arguments(words: Sequence[str]) -> None:
    """Refuse arguments (raises BadInput): whoever names a file by one would deploy another."""
    if words:
        remedy = "leave it out; another file is named by `--context config=FILE` of cdk"
        raise BadInput("argument of the app", " ".join(words), remedy)


def choose_node() -> None:
    """Choose the Node that is installed with CDK, unless one is chosen already."""
    node = os.environ.setdefault(_NODE, cdk_command()[0])
    if shutil.which(node) is None:
        raise ConfigError(_NODE, node, "unset it, or name Node.js 22 or newer")


if __name__ == "__main__":
    sys.exit(main())
