"""botocore's service models: the one description of every request and answer on the wire."""

from functools import cache

import botocore.session
from botocore.model import OperationModel, ServiceModel, StructureShape


@cache
def service_model(name: str) -> ServiceModel:
    """Return the model of a service by botocore's name: ec2, pricing, service-quotas."""
    return botocore.session.get_session().get_service_model(name)


@cache
def operation_model(service: str, operation: str) -> OperationModel:
    """Return the model of one operation."""
    return service_model(service).operation_model(operation)


def output_shape(service: str, operation: str) -> StructureShape:
    """Return the shape of an operation's answer, for operations that have one."""
    shape = operation_model(service, operation).output_shape
    if not isinstance(shape, StructureShape):
        message = f"{service}:{operation} answers nothing"
        raise TypeError(message)
    return shape
