"""What the resources of a deployment are called: no two deployments share a name or a pattern."""

#: No name of a deployment or workload holds it (``config.form.Name``), so where one part ends can
#: be told: ``gpu--a-b`` is not ``gpu-a--b``, and ``gpu--*`` matches nothing of ``gpu-a``.
SEPARATOR = "--"


#: The alarm of a webhook that takes no text.
WEBHOOK_ALARM = "webhook-errors"
#: The alarms that every deployment has, whatever its settings, and each of its workloads.
DEPLOYMENT_ALARMS = ("catalogue-missing", "control-share", "interruption-errors", "untold")
WORKLOAD_ALARMS = (
    "backlog",
    "cost",
    "dead-letters",
    "idle",
    "message-of-a-week",
    "oldest-message",
    "tick-missing",
)


def resource_name(deployment: str, *parts: str) -> str:
    """Return the name of what belongs to a deployment, or with a workload to that."""
    return SEPARATOR.join((deployment, *parts))


def scaler_name(deployment: str) -> str:
    """Return the name of the function that ticks."""
    return resource_name(deployment, "scaler")


def queue_name(deployment: str, workload: str) -> str:
    """Return the name of a workload's queue."""
    return resource_name(deployment, workload)


def is_entry(queue: str) -> bool:
    """Tell whether the name of a queue of a deployment is that of one that people send to."""
    return queue.count(SEPARATOR) == 1


def holds_jobs(queue: str) -> bool:
    """Tell whether the name of a queue of a deployment is that of one that jobs wait in.

    Those are a workload's queue and those of its shapes (``contract.queue.SHAPES``).
    """
    _, *parts = queue.split(SEPARATOR)
    return len(parts) == 1 or (len(parts) > 1 and parts[-1].startswith("c"))


def failed_events_name(deployment: str) -> str:
    """Return the name of an outpost's queue of events that do not come home."""
    return resource_name(deployment, "failed-events")


def workload_of(function: str) -> str:
    """Return the name of the workload that runs a Python function, if it has no other."""
    return function.replace("_", "-").lower()
