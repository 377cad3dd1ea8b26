"""What turns an instance into a worker: the kit that is deployed, and the scripts that use it.

The kit is what ``worker/system/install.sh`` installs from; an image is baked with it, or an
instance fetches it at its start. User data starts the worker's units in both cases, so that an
image never works while it is being made.

An image that was baked bears a stamp of what with. An instance whose template asks for something
else, because a deploy is under way or an image could not be made, installs that over it: baking
saves time at the start, and nothing depends on it. Which parts the user data of a workload has, by
its ``image.mode``, is chosen in ``infra.workload``.
"""

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.resources import files

from spindown.contract import tag
from spindown.contract.name import resource_name

#: What an instance may take to start its worker; large requirements take minutes.
START_WITHIN = timedelta(minutes=30)

#: On an image that was baked: what with.
STAMP_FILE = "/opt/spindown/baked"

#: Tag of an image that was baked: what with (``make_stamp``).
STAMP_TAG = "spindown:stamp"

#: What EC2 Image Builder gives what it makes: the ARN of its image, in which the recipe's name is.
#: The EC2 Image Builder User Guide, "Tag resources", tells of AMIs; that snapshots bear it too is
#: seen in what others run, and not yet tried by us on AWS.
BUILDER_TAG = "Ec2ImageBuilderArn"

#: AWS's own key of EBS, by which disks and images are encrypted: whoever may use EBS may use it.
#: Without a name EC2 takes the account's default, and where that is a key of one's own, neither our
#: functions nor the role of spot may use it: each instance ends at its launch
#: (github.com/aws/karpenter-provider-aws/issues/1407, github.com/runs-on/runs-on/issues/151).
DISK_KEY = "alias/aws/ebs"


@dataclass(frozen=True, slots=True)
class UvBinary:
    """uv as it was uploaded, for one kind of processor."""

    #: ``s3://bucket/key``; the worker's role may read it.
    uri: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """A kit as it was uploaded: a zip archive (``infra.shared.worker_kit``)."""

    #: ``s3://bucket/key``; the worker's role may read it.
    uri: str
    sha256: str
    #: The uv that installs from it, by what ``uname -m`` says of a processor; none: pip fetches it.
    uv: Mapping[str, UvBinary] = field(default_factory=dict)


def make_stamp(kit: Kit, code_digest: str | None) -> str:
    """Return what tells apart images that were baked with other things.

    Args:
        kit: the kit that was installed.
        code_digest: SHA-256 of the code archive whose requirements were; None if it has none.
    """
    return hashlib.sha256(f"{kit.sha256} {code_digest}".encode()).hexdigest()


def image_name(deployment: str, workload: str, architecture: str) -> str:
    """Return the name of everything that Image Builder has for an image, fit for an ARN."""
    return resource_name(deployment, workload, architecture.replace("_", "-"))


def image_parameter(deployment: str, workload: str, architecture: str) -> str:
    """Return the SSM parameter that holds the id of a workload's baked image.

    Image Builder writes it under its service-linked role, which may write below /imagebuilder/
    only (AWS Managed Policy Reference, "AWSServiceRoleForImageBuilder").
    """
    return f"/imagebuilder/spindown/{deployment}/{workload}/{architecture}"


def render_user_data(
    kit: Kit | None,
    *,
    stamp: str | None = None,
    stamp_file: str = STAMP_FILE,
    within: timedelta = START_WITHIN,
) -> str:
    """Return the user data of a worker, a shell script; CloudFormation tokens may be in the values.

    Args:
        kit: what to install; None for an image on which all is installed.
        stamp: on an image that bears this stamp nothing is installed; None: on every image.
        stamp_file: where an image bears it.
        within: an instance whose worker does not run after this time ends.
    """
    values = {
        "within": str(round(within.total_seconds())),
        "code": f"$(read_metadata tags/instance/{tag.CODE})",
        "stamp": shlex.quote(stamp or ""),
        "stamp_file": shlex.quote(stamp_file),
    }
    install = _read("bootstrap.sh") if kit else ""
    if stamp is not None:
        install = f"{_read('unless_baked.sh')}{install}fi\n"
    return _fill(_read("begin.sh") + install + _read("start.sh"), values | _describe(kit))


def render_bake(kit: Kit, *, code_uri: str | None, stamp: str, stamp_file: str = STAMP_FILE) -> str:
    """Return the script that bakes an image, to be run as root on the instance it is made of.

    Args:
        kit: what to install.
        code_uri: ``s3://bucket/key`` of the code archive whose requirements are installed as well.
        stamp: what the image will bear, see ``make_stamp``.
        stamp_file: where it will.
    """
    values = {
        "code": shlex.quote(code_uri or ""),
        "stamp": shlex.quote(stamp),
        "stamp_file": shlex.quote(stamp_file),
    }
    text = _read("bake.sh") + _read("bootstrap.sh") + "echo @stamp@ >@stamp_file@\n"
    return _fill(text, values | _describe(kit))


def _describe(kit: Kit | None) -> dict[str, str]:
    if kit is None:
        return {}
    return {
        "kit_uri": shlex.quote(kit.uri),
        "kit_sha256": shlex.quote(kit.sha256),
        "uv": "".join(
            f"    {machine}) uv={shlex.quote(one.uri)} uv_sha256={shlex.quote(one.sha256)} ;;\n"
            for machine, one in sorted(kit.uv.items())
        ),
    }


def _read(part: str) -> str:
    return files(__name__).joinpath(part).read_text(encoding="utf-8")


def _fill(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda found: values[found[1]], text)
