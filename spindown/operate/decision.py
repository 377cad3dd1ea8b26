"""A stored decision: most commands need it, and not the planner, which ``why`` loads."""

from spindown.contract.codec import decode, from_json
from spindown.contract.decision import Decision
from spindown.error import ContractError, NotFound
from spindown.port import ObjectStore


def read_decision(key: str, objects: ObjectStore) -> Decision | None:
    """Return a stored decision; None: this version cannot read it, or it is gone."""
    try:
        return decode(Decision, from_json(key, objects.get(key).data))
    except (ContractError, NotFound):
        return None
