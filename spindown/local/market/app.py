"""The market on the wire: an ASGI app for EC2, Pricing and Service Quotas.

EC2 actions that the market does not own (networks, launch templates, images) go upstream
unchanged. Signatures are not checked; the credential scope says service and region.
"""

import json
import logging
from datetime import timedelta
from inspect import isawaitable
from typing import Any
from uuid import uuid4

from botocore.model import StructureShape
from botocore.validate import ParamValidator

from spindown.local.environment import ADVISOR_PATH
from spindown.local.market.experiment import FaultExperiments
from spindown.local.market.market import LocalMarket
from spindown.local.market.operation import EC2, PRICING, QUOTA
from spindown.local.market.operation.call import Answer, ApiCall, Operation
from spindown.local.market.operation.offer import spot_advisor_data
from spindown.local.market.operation.pricing import REGIONS as PRICING_REGIONS
from spindown.local.market.wire.asgi import (
    App,
    Headers,
    Receive,
    Response,
    Scope,
    Send,
    credential_scope,
    header,
    read_body,
    replayed,
    respond,
)
from spindown.local.market.wire.protocol import (
    ApiError,
    fields_of,
    operation_model,
    parse,
    render,
    render_error,
)
from spindown.local.market.wire.upstream import DeployedNetwork, UpstreamNetwork

_LOGGER = logging.getLogger(__name__)
#: Signing name to botocore's service name and the operations owned.
_JSON_SERVICES = {"pricing": ("pricing", PRICING), "servicequotas": ("service-quotas", QUOTA)}
#: Spindown asks for none of these. The emulator would answer about instances that do not exist.
_NOT_MODELLED = frozenset({"StartInstances", "StopInstances", "RebootInstances"})
_JSON_TYPE = "application/x-amz-json-1.1"


def service_of(headers: Headers) -> str | None:
    """Return the service that a request is signed for; None when it is not signed."""
    scope = credential_scope(headers)
    return scope[1] if scope else None


class MarketApp:
    """Serves requests signed for ec2, pricing, servicequotas and fis."""

    def __init__(
        self, market: LocalMarket, upstream: App, *, network: DeployedNetwork | None = None
    ) -> None:
        """Serve `market`; what it does not own goes to `upstream`, where `network` looks too."""
        self._market = market
        self._upstream = upstream
        self._network = network or UpstreamNetwork(upstream)
        self._faults = FaultExperiments(market, self._network)
        self._tokens = float(market.scenario.api_rate.burst) if market.scenario.api_rate else 0.0
        self._refilled_at = market.started_at

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; the spot advisor's file is asked for without a signature."""
        if scope["path"] == ADVISOR_PATH:
            data = spot_advisor_data(self._market.scenario)
            await respond(send, Response(200, data, "application/json"))
            return
        signed = credential_scope(scope["headers"])
        region, service = signed or (self._market.scenario.regions[0], "ec2")
        body = await read_body(receive)
        self._market.run_due()
        if service == "fis":
            asked = scope["method"], scope["path"], body
            await respond(send, await self._faults.answer(*asked, region=region))
            return
        if service in _JSON_SERVICES:
            target = header(scope["headers"], b"x-amz-target")
            await respond(send, await self._json(service, target, body, region=region))
            return
        fields = fields_of(body, scope.get("query_string", b""))
        action = fields.get("Action", "")
        if action in EC2 or action in _NOT_MODELLED:
            await respond(send, await self._query(action, fields, region=region))
            return
        await self._upstream(scope, replayed(body, receive), send)

    async def _query(self, action: str, fields: dict[str, str], *, region: str) -> Response:
        request_id = str(uuid4())
        operation = operation_model("ec2", action)
        try:
            self._admit(action)
            found = _ec2_operation(action)
            answer = await self._answer(found, parse(operation, fields), region=region)
        except ApiError as error:
            _LOGGER.debug("ec2_refused", extra={"action": action, "code": error.code})
            xml = render_error(error, request_id=request_id)
            return Response(error.status, xml, "text/xml;charset=UTF-8")
        return Response(
            200, render(operation, answer, request_id=request_id), "text/xml;charset=UTF-8"
        )

    async def _json(self, service: str, target: str, body: bytes, *, region: str) -> Response:
        name, _ = _JSON_SERVICES[service]
        action = target.rpartition(".")[2]
        try:
            operation = _json_operation(service, action, region)
            parameters = json.loads(body or b"{}")
            _validate(operation_model(name, action).input_shape, parameters)
            answer = await self._answer(operation, parameters, region=region)
        except ApiError as error:
            text = json.dumps({"__type": error.code, "message": error.message})
            return Response(error.status, text.encode(), _JSON_TYPE)
        return Response(200, json.dumps(answer).encode(), _JSON_TYPE)

    async def _answer(
        self, operation: Operation, parameters: dict[str, Any], *, region: str
    ) -> Answer:
        call = ApiCall(
            market=self._market,
            network=self._network,
            region=region,
            parameters=parameters,
        )
        answer = operation(call)
        return await answer if isawaitable(answer) else answer

    def _admit(self, action: str) -> None:
        """Play the scenario's faults and its request rate."""
        now = self._market.now()
        since = now - self._market.started_at
        for fault in self._market.scenario.fault:
            is_now = fault.from_ <= since and (fault.until is None or since < fault.until)
            if is_now and fault.action in {action, "*"}:
                raise ApiError(fault.code, fault.message, status=fault.status)
        rate = self._market.scenario.api_rate
        if rate is None:
            return
        gained = rate.per_second * ((now - self._refilled_at) / timedelta(seconds=1))
        self._tokens, self._refilled_at = min(self._tokens + gained, rate.burst), now
        if self._tokens < 1:
            raise ApiError("RequestLimitExceeded", "Request limit exceeded.", status=503)
        self._tokens -= 1


def _ec2_operation(action: str) -> Operation:
    if action in _NOT_MODELLED:
        message = f"The local market does not model {action}."
        raise ApiError("UnsupportedOperation", message)
    return EC2[action]


def _json_operation(service: str, action: str, region: str) -> Operation:
    if service == "pricing" and region not in PRICING_REGIONS:
        message = f"Credential should be scoped to a valid region, not '{region}'."
        raise ApiError("InvalidSignatureException", message)
    _, operations = _JSON_SERVICES[service]
    if action not in operations:
        message = f"The local market does not model {service}:{action}."
        raise ApiError("UnknownOperationException", message)
    return operations[action]


def _validate(shape: object, parameters: dict[str, Any]) -> None:
    if not isinstance(shape, StructureShape):
        return
    unknown = sorted(set(parameters) - set(shape.members))
    if unknown:
        raise ApiError("ValidationException", f"Unknown parameters: {', '.join(unknown)}")
    report = ParamValidator().validate(parameters, shape)
    if report.has_errors():
        raise ApiError("ValidationException", report.generate_report())
