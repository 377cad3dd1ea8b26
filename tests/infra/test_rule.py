"""Rules that others wrote: CDK's own validator, cdk-nag's AwsSolutions."""

import json
import re
import tarfile
from importlib.resources import files
from pathlib import Path

from spindown.infra.flag import FLAGS
from tests.infra.assembly import (
    NO_GPU,
    SPREAD,
    report_findings,
    write_project,
)

_SHAPES = "queues that are made when jobs first need them; their names begin with the workload's"
_LAUNCHED = "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:"
_OBJECTS = "objects below one fixed prefix of the deployment's own bucket"
_MADE_BY_THE_LAUNCH = "it does not exist before the launch; a condition asks for our tag on it"

#: What the rules find and we keep, with the reason. Logical ids without their digests.
KEPT = {
    "AwsSolutions-IAM5[Resource::*]": "EC2's reading, Pricing and Service Quotas know no resources",
    "AwsSolutions-IAM5[Resource::<StoreBucket.Arn>/decisions/*]": _OBJECTS,
    **{
        f"AwsSolutions-IAM5[Resource::<StoreBucket.Arn>/workloads/*/{keys}]": _OBJECTS
        for keys in (
            *("batches/*.json", "jobs/*/bodies/*.json", "jobs/*/manifest.json"),
            *("open/*", "submitted/*.jsonl"),
        )
    },
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:sqs:<AWS::Region>:<AWS::AccountId>:lab--*]": (
        "the queues of the deployment: a policy has no room for the names of many"
    ),
    **{
        f"AwsSolutions-IAM5[Resource::<StoreBucket.Arn>/workloads/{workload}/{kind}/*]": _OBJECTS
        for workload in ("plain", "rich")
        for kind in ("inputs", "jobs", "state")
    },
    "AwsSolutions-IAM5[Resource::<StoreBucket.Arn>/offers/*]": _OBJECTS,
    **{
        f"AwsSolutions-IAM5[Resource::<StoreBucket.Arn>/{place}*]": _OBJECTS
        for place in ("measured/", "measured/plain/", "measured/rich/", "usage/")
    },
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>::image/*]": (
        "the image is what the parameter holds at the launch; the template names the parameter"
    ),
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>::snapshot/*]": (
        "the snapshots are those of the image"
    ),
    **{
        f"{_LAUNCHED}{one}/*]": _MADE_BY_THE_LAUNCH
        for one in ("fleet", "instance", "network-interface", "volume")
    },
    **{
        f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ssm:<AWS::Region>:<AWS::AccountId>"
        f":parameter/spindown/lab/{kind}/*]": "parameters of the deployment, one for each workload"
        for kind in ("live", "workload")
    },
    f"{_LAUNCHED}spot-instances-request/*]": "it is made beside an instance, which bears our tag",
    **{
        f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:s3:::{one}*]": (
            "the prefix that spindown.toml declares as an input"
        )
        for one in ("models/ocr/", "papers/2025/", "papers/2026/")
    },
    **{
        f"AwsSolutions-IAM5[Resource::<Workload{workload}JobsQueue.Arn>--c*]": _SHAPES
        for workload in ("plain", "rich")
    },
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:sqs:<AWS::Region>:<AWS::AccountId>"
    ":lab--*--c*]": _SHAPES,
    **{
        "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:s3:::cdk-hnb659fds-assets-"
        f"<AWS::AccountId>-eu-west-1/spindown/{folder}/*]": (
            "archives of one workload, or kits: one a release, named by its digest"
        )
        for folder in ("code/lab/plain", "code/lab/rich", "kit")
    },
    **{
        "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:imagebuilder:<AWS::Region>"
        f":<AWS::AccountId>:{kind}/lab--*]": "pipelines and images of this deployment, by names"
        for kind in ("image", "image-pipeline")
    },
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:s3:::ec2imagebuilder*]": (
        "buckets of AWS's own, from which Image Builder's program comes"
    ),
    **{
        f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:us-west-2::{kind}/*]": (
            "images come to be later; conditions ask for our tag or for Image Builder's"
        )
        for kind in ("image", "snapshot")
    },
    "AwsSolutions-S1": "access logs would cost more than the bucket; CloudTrail can record access",
    "AwsSolutions-SQS3": "it is itself where events go that could not be handled",
    "AwsSolutions-VPC7": "flow logs are billed by volume; workers accept no connection",
}


def test_cdk_and_cdk_nag_find_nothing_that_is_not_justified(tmp_path: Path) -> None:
    project = write_project(tmp_path, SPREAD)

    found = {
        (path.partition("/")[0], re.sub(r"<(\w+)[0-9A-F]{8}\.", r"<\1.", rule))
        for rule, path in report_findings(project, tmp_path / "out")
    }

    assert {rule for _, rule in found} == set(KEPT)
    assert "lab-insight" not in {stack for stack, _ in found}


def test_they_find_no_more_in_work_without_gpus(tmp_path: Path) -> None:
    project = write_project(tmp_path, NO_GPU)

    found = {
        re.sub(r"<(\w+)[0-9A-F]{8}\.", r"<\1.", rule)
        for rule, _ in report_findings(project, tmp_path / "out")
    }

    # Without images of one's own: those that bear the deployment's tag.
    assert found <= {*KEPT, "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:*::image/*]"}


def test_every_flag_that_this_cdk_recommends_is_on() -> None:
    recommended = json.loads(_read_from_library("recommended-feature-flags.json"))

    assert recommended == FLAGS


def _read_from_library(name: str) -> bytes:
    (library,) = Path(str(files("aws_cdk") / "_jsii")).glob("aws-cdk-lib@*.jsii.tgz")
    with tarfile.open(library) as archive:
        member = archive.extractfile(f"package/{name}")
        assert member is not None
        return member.read()
