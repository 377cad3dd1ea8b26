"""The ports of the functions, made once in each container; each AWS client is made at first use."""

import logging
import os
import sys
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from spindown.aws.advisor import URL, SpotAdvisor
from spindown.aws.clock import pause
from spindown.aws.session import CoreSession
from spindown.aws.wiring import Aws
from spindown.contract.location import work_root
from spindown.contract.name import resource_name
from spindown.contract.settings import (
    ENV_BUCKET,
    ENV_DEPLOYMENT,
    ENV_SPOT_ADVISOR,
    ENV_TABLE,
    ENV_TOPIC,
    WorkloadSettings,
)
from spindown.port import ControlPorts, ObjectStore, WorkPorts

_log = logging.getLogger(__name__)


@cache
def deployment_name() -> str:
    """Return the deployment that this function belongs to."""
    return os.environ[ENV_DEPLOYMENT]


def connect() -> Aws:
    """Return the adapters of AWS on botocore alone: no function needs boto3."""
    return Aws(CoreSession())


def work_ports(settings: WorkloadSettings) -> WorkPorts:
    """Return the ports on AWS of what is done with the messages of a workload."""
    aws, ports = connect(), control_ports()
    return WorkPorts(
        clock=ports.clock,
        random=ports.random,
        pause=pause,
        queue=ports.queue(settings.queue_url),
        dead_letters=ports.queue(settings.dlq_url),
        objects=aws.object_store(os.environ[ENV_BUCKET], work_root(settings.name)),
        inputs=aws.input_source([]),
        table=ports.table,
        metrics=ports.metrics,
    )


def store_of(workload: str) -> ObjectStore:
    """Return the part of the bucket that belongs to a workload."""
    return connect().object_store(os.environ[ENV_BUCKET], work_root(workload))


@cache
def control_ports() -> ControlPorts:
    """Return the ports on AWS of this container; making them calls nothing."""
    aws = connect()
    advisor_url = os.environ.get(ENV_SPOT_ADVISOR, URL)
    return ControlPorts(
        name=deployment_name(),
        clock=aws.clock,
        random=Random(),
        table=aws.table(os.environ[ENV_TABLE]),
        objects=aws.object_store(os.environ[ENV_BUCKET]),
        settings=aws.settings(deployment_name()),
        compute=aws.compute(),
        market=aws.market(),
        metrics=aws.printed_metrics(sys.stdout),
        queue=aws.queue,
        topic=aws.topic(os.environ[ENV_TOPIC]),
        router=aws.waker(resource_name(deployment_name(), "intake")),
        builder=aws.image_builder(),
        advisor=SpotAdvisor(aws.clock, advisor_url) if advisor_url else None,
    )


def for_each_workload(
    action: str, act: Callable[[str, ControlPorts], object], ports: ControlPorts
) -> dict[str, Any]:
    """Do something for each workload; an error in one does not stop the others.

    Return by workload what was done, under the name of the action, and what failed, under that name
    after ``not_``; the next run tries it again.
    """
    done: dict[str, object] = {}
    failures: dict[str, str] = {}
    for workload in ports.deployment().workloads:
        try:
            found = act(workload, ports)
        except Exception as exc:  # noqa: BLE001 - an edge: what one workload's workers wrote
            _log.warning("not_%s", action, exc_info=exc)
            failures[workload] = str(exc) or type(exc).__name__
        else:
            if found:
                done[workload] = found
    return {action: done, f"not_{action}": failures}
