"""How long the parameters of SSM are that a stack writes, and how long they may be."""

from collections.abc import Mapping, Sequence
from typing import Any

from spindown.contract.settings import PARAMETER_BYTES_MAX
from spindown.error import ConfigError

#: As long as what a text refers to may become: an id of EC2; else the address of a queue, which
#: is ``https://sqs.REGION.amazonaws.com/ACCOUNT/`` and a name of up to 80 characters.
_ID, _ADDRESS = 24, 134


def measure_text(text: Any) -> int:
    """Return the most characters that a text of a template has once its references are resolved."""
    match text:
        case str() | {"Fn::Sub": str()}:
            return len(text if isinstance(text, str) else text["Fn::Sub"])
        case {"Fn::Join": [str(glue), list(parts)]}:
            return sum(map(measure_text, parts)) + len(glue) * (len(parts) - 1)
        case {"Ref": str(name)} if "::" not in name:
            return _ADDRESS
    return _ID


def check_parameters(templates: Sequence[Mapping[str, Any]]) -> None:
    """Check that SSM takes each parameter (raises ConfigError)."""
    for template in templates:
        for resource in template["Resources"].values():
            if resource["Type"] == "AWS::SSM::Parameter":
                size = measure_text(resource["Properties"]["Value"])
                if size > PARAMETER_BYTES_MAX:
                    raise ConfigError(
                        f"workload.{resource['Properties']['Name'].rpartition('/')[2]}",
                        f"settings of {size:,} bytes",
                        "declare fewer types of jobs in a workload, or shorten its lists: a "
                        f"parameter of Systems Manager takes {PARAMETER_BYTES_MAX:,}",
                    )
