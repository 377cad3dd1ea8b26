"""Which workload a batch or a job is of: an id is one of a kind within its workload alone."""

from contextlib import suppress

from spindown.app.batch.result import find_jobs
from spindown.cli.session import Session
from spindown.error import BadInput, NotFound


def find_workload(
    session: Session, name: str, *, workload: str | None, argument: str
) -> tuple[str, tuple[str, ...]]:
    """Return the workload that has a batch or a job, and the jobs that the name stands for.

    Args:
        session: the deployment.
        name: the batch or the job.
        workload: the only one that is meant; None: whichever has it.
        argument: what the name was given as.

    Raises:
        BadInput: no workload has it, or several have; or there is no such workload.
    """
    if workload is not None:
        session.workload(workload)
    found = []
    for each in session.deployment.workloads if workload is None else (workload,):
        with suppress(NotFound):
            found.append((each, find_jobs(name, session.work_store(each))))
    if not found:
        raise BadInput(argument, name, "name a batch or a job that was submitted")
    if len(found) > 1:
        owners = ", ".join(each for each, _ in found)
        raise BadInput(argument, name, f"say with --workload which one is meant: {owners}")
    return found[0]
