"""What only reads of a real account, where the contract suites cannot run: nothing is changed.

`make aws` runs it, beside those that can (`tests/ports/real_account.py`), with the credentials of
the shell. Whoever runs it needs an operator's rights.
"""

import os

import boto3
import pytest

from spindown.aws.wiring import Aws
from spindown.contract.settings import TemplateRef
from spindown.domain.offer import CapacityType
from spindown.error import NotFound
from spindown.port import LaunchOverride, LaunchRequest, RefusalKind

pytestmark = pytest.mark.aws

#: AWS Deep Learning AMI Developer Guide, "Parameter Store".
DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
TYPE = "g4dn.xlarge"


@pytest.fixture(scope="module")
def aws() -> Aws:
    # boto3 reads AWS_DEFAULT_REGION alone.
    return Aws(boto3.Session(region_name=os.environ.get("AWS_REGION")))


@pytest.fixture(scope="module")
def region(aws: Aws) -> str:
    assert aws.region, "set AWS_REGION"
    return aws.region


def test_the_account_says_who_it_is_and_what_it_allows(aws: Aws, region: str) -> None:
    account = aws.account()

    assert len(account.caller().account) == 12
    assert account.has_spot_role() in {True, False}
    assert account.concurrency(region=region) >= 10
    account.plan()


def test_the_image_of_the_usual_parameter_is_there(aws: Aws, region: str) -> None:
    account = aws.account()

    image = account.image(account.parameter(DLAMI, region=region), region=region)

    assert (image.architecture, image.state) == ("x86_64", "available")
    assert image.root_gib > 0


def test_what_is_not_there_is_not_found(aws: Aws, region: str) -> None:
    with pytest.raises(NotFound):
        aws.account().parameter("/spindown/absent/parameter", region=region)
    with pytest.raises(NotFound):
        aws.account().image("ami-0123456789abcdef0", region=region)
    with pytest.raises(NotFound):
        aws.compute().instance(region=region, instance_id="i-0fffffffffffffff0")
    assert list(aws.account().subnets(["subnet-0123456789abcdef0"], region=region)) == []
    assert list(aws.compute().described(region=region, instance_ids=["i-0fffffffffffffff0"])) == []


def test_the_market_knows_a_gpu_its_zones_and_prices(aws: Aws, region: str) -> None:
    market = aws.market()

    (kind,) = [one for one in market.instance_types(region=region) if one.name == TYPE]
    zones = {zone for zone, names in market.offerings(region=region).items() if TYPE in names}
    spot = market.spot_prices(region=region, instance_types=[TYPE])
    on_demand = market.on_demand_prices(region=region)[TYPE]
    assert (kind.gpu_name, kind.gpu_count, kind.vcpus) == ("T4", 1, 4)
    assert zones
    assert {one.zone for one in spot} <= zones
    assert all(0 < one.price <= on_demand for one in spot)
    assert 0.01 < market.volume_price(region=region) < 1.0
    assert {"G/Spot", "G/OnDemand"} <= market.quotas(region=region).keys()


def test_a_rehearsal_of_what_is_not_there_is_refused(aws: Aws, region: str) -> None:
    override = LaunchOverride(
        instance_type=TYPE, zone=f"{region}a", subnet_id="subnet-0123456789abcdef0"
    )
    refusal = aws.compute().rehearse(
        LaunchRequest(
            client_token="make-aws",
            region=region,
            template=TemplateRef(id="lt-0123456789abcdef0", version="1"),
            capacity_type=CapacityType.SPOT,
            overrides=(override,),
            count=1,
            tags={"spindown:deployment": "make-aws"},
        )
    )

    assert refusal is not None
    assert refusal.kind is RefusalKind.ACCOUNT
