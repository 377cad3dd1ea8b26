"""Images in the regions of outposts."""

from pathlib import Path

from tests.infra.assembly import listed, synthesise_image, words, write_project
from tests.infra.image.conftest import CONFIG
from tests.infra.image.test_stack import PARAMETERS, made


def test_an_outpost_copies_each_image_under_the_same_parameter(tmp_path: Path) -> None:
    spread = CONFIG.replace("zones =", 'outpost.us-west-2.zones = ["us-west-2b"]\nzones =', 1)
    project = write_project(tmp_path, spread)
    (tmp_path / "code" / "needs.txt").write_text("six\n")
    made_here = synthesise_image(project, tmp_path / "out")

    for name, parameter in PARAMETERS.items():
        there = made(made_here, "DistributionConfiguration", name)["Distributions"]
        assert [one["Region"] for one in there] == ["eu-west-1", "us-west-2"]
        here, copy = (one["AmiDistributionConfiguration"] for one in there)
        assert "KmsKeyId" not in here
        key = words(copy["KmsKeyId"])
        assert key == "arn:<AWS::Partition>:kms:us-west-2:<AWS::AccountId>:alias/aws/ebs"
        for one in there:
            (written,) = one["SsmParameterConfigurations"]
            assert written["ParameterName"] == parameter
    statements = made_here.statements("ExpiryRole")
    for sid in ("EndImages", "DeleteSnapshots"):
        found = [words(one) for one in listed(statements[sid]["Resource"])]
        assert any(":ec2:us-west-2::" in resource for resource in found)
