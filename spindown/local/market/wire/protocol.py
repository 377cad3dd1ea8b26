"""EC2's query protocol: form fields in, XML out, both by the shapes of botocore's service models.

A request is read as strictly as EC2 reads it: unknown parameters, wrong types, unknown values of
closed enumerations and missing required parameters are errors.
"""

import base64
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import parse_qsl
from xml.etree.ElementTree import Element, SubElement, tostring

import botocore.session
from botocore.model import ListShape, OperationModel, ServiceModel, Shape, StructureShape

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
#: Enumerations that AWS adds to all the time; what exists is the catalogue's affair.
_OPEN_ENUMERATIONS = {"InstanceType", "ResourceType"}

#: A parsed form: a leaf is text, "Filter.1.Name" is three levels of nesting.
Tree = dict[str, Any]


class ApiError(Exception):
    """An AWS error code and its text."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        """Keep the parts apart; `status` is the HTTP status."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


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


def fields_of(body: bytes, query_string: bytes = b"") -> dict[str, str]:
    """Return the form fields of a request."""
    text = "&".join(part.decode() for part in (query_string, body) if part)
    return dict(parse_qsl(text, keep_blank_values=True))


def parse(operation: OperationModel, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return an EC2 request's parameters under their botocore names; raise `ApiError`."""
    tree: Tree = {}
    for key, value in fields.items():
        if key in {"Action", "Version"}:
            continue
        *path, leaf = key.split(".")
        branch = tree
        for step in path:
            branch = branch.setdefault(step, {})
            if not isinstance(branch, dict):
                raise _unknown(key)
        branch[leaf] = value
    shape = operation.input_shape
    if not isinstance(shape, StructureShape):
        return {}
    return _structure(shape, tree, path="")


def _unknown(key: str) -> ApiError:
    return ApiError("UnknownParameter", f"The parameter {key} is not recognized")


def _wire_name(shape: Shape, member: str) -> str:
    """Return a parameter's name on the wire, as botocore's EC2 serialiser writes it."""
    serialization: Mapping[str, str] = shape.serialization
    if "queryName" in serialization:
        return serialization["queryName"]
    name = serialization.get("name", member)
    return name[0].upper() + name[1:]


def _structure(shape: StructureShape, tree: Tree, *, path: str) -> dict[str, Any]:
    rest, parsed = dict(tree), {}
    for member, member_shape in shape.members.items():
        name = _wire_name(member_shape, member)
        if name in rest:
            parsed[member] = _value(member_shape, rest.pop(name), path=f"{path}{name}")
    if rest:
        raise _unknown(path + next(iter(rest)))
    for required in shape.required_members:
        if required not in parsed:
            message = f"The request must contain the parameter {path}{required}"
            raise ApiError("MissingParameter", message)
    return parsed


def _value(shape: Shape, raw: str | Tree, *, path: str) -> Any:
    if isinstance(shape, StructureShape):
        if not isinstance(raw, dict):
            raise _unknown(path)
        return _structure(shape, raw, path=f"{path}.")
    if isinstance(shape, ListShape):
        if not isinstance(raw, dict):
            return [] if raw == "" else _fail(path, raw)
        if not all(index.isdigit() for index in raw):
            raise _unknown(f"{path}.{next(iter(raw))}")
        ordered = sorted(raw, key=int)
        return [_value(shape.member, raw[index], path=f"{path}.{index}") for index in ordered]
    if isinstance(raw, dict):
        raise _unknown(f"{path}.{next(iter(raw))}")
    return _scalar(shape, raw, path=path)


def _fail(path: str, raw: str) -> Any:
    raise ApiError("InvalidParameterValue", f"Invalid value '{raw}' for {path}.")


def _moment(raw: str) -> datetime:
    moment = datetime.fromisoformat(raw)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_READ: Mapping[str, Callable[[str], Any]] = {
    "integer": int,
    "long": int,
    "float": float,
    "double": float,
    "boolean": lambda raw: {"true": True, "false": False}[raw.lower()],
    "timestamp": _moment,
    "blob": lambda raw: base64.b64decode(raw, validate=True),
    "string": str,
}


def _scalar(shape: Shape, raw: str, *, path: str) -> Any:
    try:
        value = _READ[shape.type_name](raw)
    except (ValueError, KeyError, Base64Error):
        return _fail(path, raw)
    closed = getattr(shape, "enum", [])
    if closed and shape.name not in _OPEN_ENUMERATIONS and raw not in closed:
        return _fail(path, raw)
    return value


def render(operation: OperationModel, answer: Mapping[str, Any], *, request_id: str) -> bytes:
    """Return the XML of an answer; a member that the model lacks is a mistake of ours."""
    root = Element(f"{operation.name}Response", xmlns=_NAMESPACE)
    SubElement(root, "requestId").text = request_id
    if isinstance(operation.output_shape, StructureShape):
        _fill(root, operation.output_shape, answer)
    else:
        SubElement(root, "return").text = "true"
    return _document(root)


def _document(root: Element) -> bytes:
    text: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _fill(parent: Element, shape: StructureShape, answer: Mapping[str, Any]) -> None:
    for member, value in answer.items():
        if value is None:
            continue
        member_shape = shape.members[member]
        _append(parent, member_shape.serialization.get("name", member), member_shape, value)


def _append(parent: Element, name: str, shape: Shape, value: Any) -> None:
    element = SubElement(parent, name)
    if isinstance(shape, StructureShape):
        _fill(element, shape, value)
    elif isinstance(shape, ListShape):
        item = shape.member.serialization.get("name", "item")
        for one in value:
            _append(element, item, shape.member, one)
    else:
        element.text = _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return timestamp(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def timestamp(moment: datetime) -> str:
    """Return a moment as EC2 writes it: UTC, milliseconds, Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + (
        f"{moment.microsecond // 1000:03d}Z"
    )


def known_members(shape: Shape, value: Any) -> Any:
    """Drop the members that the installed service model does not know, at any depth."""
    if isinstance(shape, StructureShape):
        return {
            member: known_members(shape.members[member], part)
            for member, part in value.items()
            if member in shape.members
        }
    if isinstance(shape, ListShape):
        return [known_members(shape.member, part) for part in value]
    return value


def render_error(error: ApiError, *, request_id: str) -> bytes:
    """Return the XML of an EC2 error."""
    root = Element("Response")
    entry = SubElement(SubElement(root, "Errors"), "Error")
    SubElement(entry, "Code").text = error.code
    SubElement(entry, "Message").text = error.message
    SubElement(root, "RequestID").text = request_id
    return _document(root)


def decoded(user_data: str | None) -> bytes:
    """Return user data as the guest reads it; EC2 carries it in base64."""
    return base64.b64decode(user_data) if user_data else b""
