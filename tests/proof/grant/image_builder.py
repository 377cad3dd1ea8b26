"""EC2 Image Builder beside MiniStack, which has none: two actions, and who may ask for them."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from spindown.local import emulator
from spindown.local.environment import ACCOUNT
from spindown.local.market.app import service_of
from spindown.local.market.wire.asgi import (
    App,
    Receive,
    Response,
    Scope,
    Send,
    header,
    read_body,
    respond,
)

REGION = "us-east-1"
IMAGE = "ami-0123456789abcdef0"
_ACCESS_KEY = re.compile(r"Credential=([^/,]+)/")
#: Whether a caller, by its access key, may do something to a resource.
Allows = Callable[[str, str, str], bool]


class ImageBuilderWorld:
    """The ASGI app: MiniStack's, and Image Builder beside it."""

    def __init__(self, allows: Allows) -> None:
        self._allows = allows
        self._app: App

    def load(self, port: int) -> "ImageBuilderWorld":
        """Load MiniStack for a port; return this app."""
        self._app = emulator.load(port)
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if service_of(scope.get("headers", ())) != "imagebuilder":
            await self._app(scope, receive, send)
            return
        asked = json.loads(await read_body(receive) or b"{}")
        asked |= {name: one for name, (one, *_) in parse_qs(scope["query_string"].decode()).items()}
        action = scope["path"].strip("/")
        target = asked.get("imagePipelineArn") or asked["imageBuildVersionArn"]
        found = _ACCESS_KEY.search(header(scope["headers"], b"authorization"))
        caller = found[1] if found else ""
        # What starts a pipeline must also be allowed to read it (Service Authorization Reference).
        needed = [
            action,
            *(["GetImagePipeline"] if action == "StartImagePipelineExecution" else []),
        ]
        if all(self._allows(caller, f"imagebuilder:{one}", target) for one in needed):
            await respond(send, _json(200, _ANSWERS[action](target)))
        else:
            await respond(send, _json(403, {"message": f"not authorized to perform {action}"}))


def _start(pipeline: str) -> dict[str, Any]:
    name = pipeline.rpartition("/")[2]
    built = f"arn:aws:imagebuilder:{REGION}:{ACCOUNT}:image/{name}/1.0.0/1"
    return {"imageBuildVersionArn": built, "requestId": "1"}


def _read(build: str) -> dict[str, Any]:
    amis = [{"region": REGION, "image": IMAGE}]
    state = {"status": "AVAILABLE"}
    return {"image": {"arn": build, "state": state, "outputResources": {"amis": amis}}}


#: What starts a pipeline must be allowed to read it as well (Service Authorization Reference,
#: "Actions defined by Amazon EC2 Image Builder").
_NEEDED = {
    "StartImagePipelineExecution": ("StartImagePipelineExecution", "GetImagePipeline"),
    "GetImage": ("GetImage",),
}
_ANSWERS = {"StartImagePipelineExecution": _start, "GetImage": _read}


def _json(status: int, said: dict[str, Any]) -> Response:
    return Response(status, json.dumps(said).encode(), "application/json")
