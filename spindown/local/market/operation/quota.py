"""Service Quotas: the vCPU quotas that stand between a new account and its first GPU."""

from spindown.ec2sim import QUOTAS, VcpuQuota
from spindown.local.market.operation.call import Answer, ApiCall, Operation, page
from spindown.local.market.wire.protocol import ApiError


def _no_resource(message: str) -> ApiError:
    return ApiError("NoSuchResourceException", message)


def _require_ec2(call: ApiCall) -> None:
    if call.parameters["ServiceCode"] != "ec2":
        raise _no_resource("The request failed because the specified service does not exist.")


def list_service_quotas(call: ApiCall) -> Answer:
    """List the vCPU quotas of EC2."""
    _require_ec2(call)
    rows, token = page(QUOTAS, call.parameters, largest=100)
    answer: Answer = {"Quotas": [_described(call, one) for one in rows]}
    return {**answer, "NextToken": token} if token else answer


def get_service_quota(call: ApiCall) -> Answer:
    """Return one quota by its code."""
    _require_ec2(call)
    for quota in QUOTAS:
        if quota.code == call.parameters["QuotaCode"]:
            return {"Quota": _described(call, quota)}
    raise _no_resource("The request failed because the specified quota does not exist.")


def _described(call: ApiCall, quota: VcpuQuota) -> Answer:
    account = call.market.account
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{call.region}:{account}:ec2/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Value": call.market.scenario.quota.get(quota.code, quota.default),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
        "UsageMetric": {
            "MetricNamespace": "AWS/Usage",
            "MetricName": "ResourceCount",
            "MetricDimensions": {
                "Class": quota.usage_class,
                "Resource": "vCPU",
                "Service": "EC2",
                "Type": "Resource",
            },
            "MetricStatisticRecommendation": "Maximum",
        },
    }


OPERATIONS: dict[str, Operation] = {
    "GetServiceQuota": get_service_quota,
    "ListServiceQuotas": list_service_quotas,
}
