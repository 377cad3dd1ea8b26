"""How long the parameters of SSM are that a stack writes, and how long they may be."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spindown.contract.settings import PARAMETER_BYTES_MAX
from spindown.error import ConfigError

#: As long as what a text refers to may become: an id of EC2, a region or an account; else the
#: address of a queue, which is ``https://sqs.REGION.amazonaws.com/ACCOUNT/`` and a name of up to 80
#: characters.
ID_MOST = 24
_ADDRESS_MOST = 134
#: The kinds of parameters that there are for each workload.
_OF_WORKLOADS = frozenset({"workload", "outpost"})


def write_out(part: Any, longest: Callable[[Mapping[str, Any]], int]) -> Any:
    """Return a part of a template with each reference as long as ``longest`` says."""
    match part:
        case {"Fn::Join": [str(glue), list(parts)]}:
            return glue.join(str(write_out(one, longest)) for one in parts)
        case {"Fn::Sub": str(text)}:
            return text
        case {"Ref": str()} | {"Fn::GetAtt": list()}:
            return "x" * longest(part)
        case Mapping():
            return {key: write_out(one, longest) for key, one in part.items()}
        case list():
            return [write_out(one, longest) for one in part]
    return part


def measure_text(text: Any, resources: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the most characters that a text of a template has once its references are resolved.

    Args:
        text: a text, or what becomes one.
        resources: those of its template, by logical id.
    """

    def longest(reference: Mapping[str, Any]) -> int:
        name = reference.get("Ref")
        # An attribute that is read is an id, and what AWS names by itself is short.
        if name is None or "::" in name:
            return ID_MOST
        kind = resources.get(name, {}).get("Type", "")
        return ID_MOST if kind.startswith("AWS::EC2::") else _ADDRESS_MOST

    return len(str(write_out(text, longest)))


def check_parameters(templates: Sequence[Mapping[str, Any]]) -> None:
    """Check that SSM takes each parameter (raises ConfigError)."""
    for template in templates:
        resources = template["Resources"]
        for resource in resources.values():
            if resource["Type"] == "AWS::SSM::Parameter":
                _check(resource["Properties"], resources)


def _check(properties: Mapping[str, Any], resources: Mapping[str, Mapping[str, Any]]) -> None:
    size = measure_text(properties["Value"], resources)
    if size > PARAMETER_BYTES_MAX:
        *_, kind, name = properties["Name"].split("/")
        raise ConfigError(
            f"workload.{name}" if kind in _OF_WORKLOADS else name,
            f"settings of {size:,} bytes",
            "shorten its lists, of a workload first its types of jobs: a parameter of Systems "
            f"Manager takes {PARAMETER_BYTES_MAX:,}",
        )
