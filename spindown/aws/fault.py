"""Spot interruptions on purpose: experiments of AWS Fault Injection Service."""

from collections.abc import Callable, Mapping
from typing import Any

from spindown.aws.error import translated
from spindown.port import Experiment

#: States in which an experiment is over (AWS FIS API Reference, "ExperimentState").
_FAILED = frozenset({"stopped", "failed", "cancelled"})


class FisInjector:
    """FaultInjector on AWS FIS; boto3's stubs leave this service out."""

    def __init__(self, make_client: Callable[[], Any]) -> None:
        """Take what makes the client, since few ever inject a fault."""
        self._make_client = make_client

    def find(self, tags: Mapping[str, str]) -> str:
        """Return the id of the experiment template that has these tags; "": there is none."""
        with translated():
            pages = self._make_client().get_paginator("list_experiment_templates").paginate()
            for page in pages:
                for template in page["experimentTemplates"]:
                    if tags.items() <= template.get("tags", {}).items():
                        return str(template["id"])
        return ""

    def start(self, template_id: str, *, token: str, tags: Mapping[str, str]) -> str:
        """Start an experiment from a template, once for each token; return its id."""
        with translated():
            answer = self._make_client().start_experiment(
                experimentTemplateId=template_id, clientToken=token, tags=tags
            )
        return str(answer["experiment"]["id"])

    def read(self, experiment_id: str) -> Experiment:
        """Return how an experiment stands."""
        with translated():
            answer = self._make_client().get_experiment(id=experiment_id)
        state = answer["experiment"]["state"]
        status = str(state["status"])
        return Experiment(state=status, has_failed=status in _FAILED, said=state.get("reason", ""))
