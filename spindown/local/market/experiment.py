"""AWS Fault Injection Service, as far as `spindown verify` asks for it: a spot interruption.

There is a template for each workload whose launch templates were deployed. An experiment takes one
running spot instance of it, as the deployed template does (`infra/fault.py`). The two minutes'
notice are played in seconds, as all of the local system's time is short.
"""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from spindown.contract import tag
from spindown.contract.name import SEPARATOR
from spindown.ec2sim import Ec2Instance
from spindown.local.market.market import LocalMarket
from spindown.local.market.wire.asgi import Response
from spindown.local.market.wire.upstream import DeployedNetwork

#: By which the deployed template finds them, too.
_OURS = (tag.DEPLOYMENT, tag.WORKLOAD, tag.REGION)
_PREFIX = "EXT"
#: A worker looks for one every five seconds, and has to commit and let go.
_NOTICE = timedelta(seconds=12)
_EXPERIMENT = re.compile(r"/experiments/([\w-]+)")


class FaultExperiments:
    """The experiments of one market."""

    def __init__(self, market: LocalMarket, network: DeployedNetwork) -> None:
        """Interrupt instances of this market, launched from templates of this network."""
        self._market = market
        self._network = network
        self._experiments: dict[str, Mapping[str, Any]] = {}
        self._by_token: dict[str, str] = {}

    async def answer(self, method: str, path: str, body: bytes, *, region: str) -> Response:
        """Answer one request of the REST API in a region."""
        if (method, path) == ("GET", "/experimentTemplates"):
            templates = await self._templates(region)
            return _json(200, {"experimentTemplates": list(templates.values())})
        if (method, path) == ("POST", "/experiments"):
            return self._start(json.loads(body or b"{}"), await self._templates(region))
        named = _EXPERIMENT.fullmatch(path)
        if method == "GET" and named and named[1] in self._experiments:
            return _json(200, {"experiment": self._experiments[named[1]]})
        return _json(404, {"message": f"The local market does not model {method} {path}."})

    async def _templates(self, region: str) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for template in await self._network.launch_templates(region=region):
            tags = {key: template.instance_tags.get(key, "") for key in _OURS}
            name = SEPARATOR.join((_PREFIX, *tags.values()))
            if all(tags.values()):
                found[name] = {"id": name, "tags": tags}
        return found

    def _start(
        self, asked: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]]
    ) -> Response:
        template = templates.get(asked.get("experimentTemplateId", ""))
        if template is None:
            return _json(404, {"message": "The experiment template does not exist."})
        token = str(asked.get("clientToken", ""))
        if token in self._by_token:
            return _json(200, {"experiment": self._experiments[self._by_token[token]]})
        experiment_id = self._market.new_id(_PREFIX)
        target = next(filter(_is_target_of(template["tags"]), self._market.instances()), None)
        state = {"status": "completed", "reason": ""}
        if target is None:
            state = {"status": "failed", "reason": "Target resolution returned empty set"}
        else:
            self._market.interrupt(target.instance_id, notice=_NOTICE)
        self._by_token[token] = experiment_id
        self._experiments[experiment_id] = {
            "id": experiment_id,
            "experimentTemplateId": template["id"],
            "state": state,
            "tags": dict(asked.get("tags", {})),
        }
        return _json(200, {"experiment": self._experiments[experiment_id]})


def _is_target_of(tags: Mapping[str, str]) -> Any:
    def is_target(instance: Ec2Instance) -> bool:
        is_running = instance.state.value == "running" and instance.notice is None
        return instance.is_spot and is_running and tags.items() <= instance.tags.items()

    return is_target


def _json(status: int, value: Mapping[str, Any]) -> Response:
    return Response(status, json.dumps(value).encode(), "application/json")
