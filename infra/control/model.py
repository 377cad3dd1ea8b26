"""botocore's service models, cut down to what the functions call.

A client of EC2 reads the description of all its operations, hundreds of them, to use seven, and a
function waits for it at every start. What is cut changes no answer: an operation that is not
listed here is missing from its client.
"""

import gzip
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

#: Service -> the operations that functions call; none listed: all of them.
CALLED: Mapping[str, Sequence[str]] = {
    "dynamodb": (),
    "ec2": (
        "CreateFleet",
        "DescribeInstanceTypeOfferings",
        "DescribeInstanceTypes",
        "DescribeInstances",
        "DescribeSpotInstanceRequests",
        "DescribeSpotPriceHistory",
        "TerminateInstances",
    ),
    "pricing": ("GetProducts",),
    "s3": (),
    "service-quotas": ("ListServiceQuotas",),
    "sns": ("Publish",),
    "sqs": (),
    "ssm": ("GetParameters",),
}


def trim_models(data: Path) -> None:
    """Cut botocore's ``data`` directory down to the services and operations that are called."""
    for directory in sorted(path for path in data.iterdir() if path.is_dir()):
        if directory.name not in CALLED:
            shutil.rmtree(directory)
            continue
        *old, newest = sorted(directory.iterdir())
        for version in old:
            shutil.rmtree(version)
        _rewrite(newest / "service-2.json.gz", CALLED[directory.name])


def _rewrite(path: Path, operations: Sequence[str]) -> None:
    model = trim(json.loads(gzip.decompress(path.read_bytes())), operations)
    # uv may have linked the file from its cache, which is shared with everything it installs.
    path.unlink()
    # No time in the file: the same model gives the same bytes.
    path.write_bytes(gzip.compress(json.dumps(model, separators=(",", ":")).encode(), mtime=0))


def trim(model: Mapping[str, Any], operations: Sequence[str]) -> Json:
    """Return ``model`` with these operations, the shapes they need, and no documentation."""
    kept = {
        name: _undocumented(operation)
        for name, operation in model["operations"].items()
        if not operations or name in operations
    }
    shapes: Json = {}
    needed = list(_shapes_of(kept))
    while needed:
        name = needed.pop()
        if name not in shapes:
            shapes[name] = _undocumented(model["shapes"][name])
            needed.extend(_shapes_of(shapes[name]))
    rest = {key: value for key, value in model.items() if key != "documentation"}
    return {**rest, "operations": kept, "shapes": dict(sorted(shapes.items()))}


def _shapes_of(value: Any) -> Iterator[str]:
    """Yield the names of the shapes that a part of a model refers to."""
    if isinstance(value, Mapping):
        if isinstance(value.get("shape"), str):
            yield value["shape"]
        for part in value.values():
            yield from _shapes_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from _shapes_of(part)


def _undocumented(value: Any) -> Any:
    """Return a part of a model without texts for people; a member may bear that name too."""
    if isinstance(value, Mapping):
        return {
            key: _undocumented(part)
            for key, part in value.items()
            if key != "documentation" or not isinstance(part, str)
        }
    return [_undocumented(part) for part in value] if isinstance(value, list) else value
