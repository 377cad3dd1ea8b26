"""The local system under IAM: each function and each instance may do what its role may.

MiniStack evaluates the policies that were deployed, as it does with AUTH=true. What it asks of a
role is noted, and can be asked again after the role's policy was changed.
"""

# Private members of MiniStack are this file's subject, as they are of spindown.local.emulator.
# ruff: noqa: PLC0415

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from spindown.local.environment import ACCOUNT
from spindown.local.market import MarketInstance, RoleCredentials
from spindown.local.system import LocalSystem

#: MiniStack cannot check them: the first against all parameters at once, which no grant by name
#: allows; the second without what the condition on it compares.
_NOT_CHECKED = frozenset({"ssm:GetParameters", "events:PutEvents"})
#: One grant serves a call and its batch (Amazon SQS Developer Guide, "API permissions").
_BATCH = "Batch"


@dataclass(frozen=True)
class Question:
    """One thing that IAM was asked."""

    role: str
    action: str
    resource: str
    #: As MiniStack passes them on, to ask it again.
    arguments: tuple[Any, ...] = field(compare=False)

    def __str__(self) -> str:
        """Name it for people."""
        return f"{self.role}: {self.action} {self.resource}"


class Enforcement:
    """IAM of one local system, switched on."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.denied: list[Question] = []
        self._roles: dict[str, str] = {}
        self._ask: Any = None

    def credentials(self, instance: MarketInstance) -> RoleCredentials:
        """Return keys of the role of an instance."""
        profile = (instance.profile_arn or "").rpartition("/")[2]
        return self.keys_of(self._roles[profile])

    def keys_of(self, role: str) -> RoleCredentials:
        """Return keys with which a caller is a role."""
        from ministack.services import sts

        made = RoleCredentials(
            role=role,
            access_key=f"ASIA{secrets.token_hex(8).upper()}",
            secret_key=secrets.token_hex(16),
            token=secrets.token_hex(16),
            expires_at=datetime.now(UTC) + timedelta(hours=6),
        )
        session = {
            "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/{role}/instance",
            "UserId": f"{role}:instance",
            "SecretAccessKey": made.secret_key,
            "SessionToken": made.token,
        }
        sts.register_session(made.access_key, session)
        return made

    @contextmanager
    def on(self, system: LocalSystem) -> Iterator[None]:
        """Enforce the policies of a system that is up."""
        from ministack import app
        from ministack.core import iam_evaluator

        self._system = system
        self._ask, pin = iam_evaluator.enforce, app.pin_request_origin
        app.AUTH, iam_evaluator.enforce = True, self._enforce
        # Loopback has no TLS, which the policies of queues and bucket ask for.
        app.pin_request_origin = lambda address, _secure: pin(address, True)
        try:
            yield
        finally:
            app.AUTH, iam_evaluator.enforce, app.pin_request_origin = False, self._ask, pin

    def _enforce(self, *arguments: Any, **known: Any) -> Any:
        from ministack.core import iam_evaluator

        access_key, action, service, region, resource, *rest = _as_iam_asks(*arguments, **known)
        identity = str((iam_evaluator.resolve_caller_identity(access_key) or {}).get("userArn"))
        _, is_role, session = identity.partition("assumed-role/")
        arguments = (access_key, action, service, region, resource, *rest)
        if is_role and action in _NOT_CHECKED:
            return None
        answer = self._ask(*arguments)
        if is_role:
            question = Question(session.partition("/")[0], action, resource, arguments)
            self.asked.append(question)
            if answer is not None:
                self.denied.append(question)
        return answer

    def would_deny(self, questions: Sequence[Question]) -> list[Question]:
        """Ask again, by the policies as they are now; return what would be denied."""
        from ministack.core import iam_evaluator
        from ministack.core.responses import request_scope

        with request_scope(ACCOUNT, self._system.region):
            iam_evaluator.pin_request_origin("127.0.0.1", True)
            return [one for one in questions if self._ask(*one.arguments) is not None]

    def learn_profiles(self) -> None:
        """Look up whose role each instance profile holds, once they are deployed.

        The metadata is served by the thread that serves IAM: it cannot ask when it is asked.
        """
        found = self._system.client("iam").list_instance_profiles()["InstanceProfiles"]
        self._roles = {
            one["InstanceProfileName"]: one["Roles"][0]["RoleName"] for one in found if one["Roles"]
        }

    @contextmanager
    def without(self, role: str, sid: str) -> Iterator[None]:
        """Take one statement from a role's policies."""
        iam = self._system.client("iam")
        taken = 0
        before: dict[str, Any] = {}
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
            document = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            before[name] = document
            rest = [one for one in document["Statement"] if one.get("Sid") != sid]
            taken += len(document["Statement"]) - len(rest)
            self._put(iam, role, name, {**document, "Statement": rest})
        assert taken == 1, f"{role} has {taken} statements {sid}"
        try:
            yield
        finally:
            for name, document in before.items():
                self._put(iam, role, name, document)

    @staticmethod
    def _put(iam: Any, role: str, name: str, document: Any) -> None:
        iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(document))


def _as_iam_asks(
    access_key: str,
    action: str,
    service: str,
    region: str,
    resource_arn: str = "*",
    service_context: Mapping[str, Any] | None = None,
) -> tuple[Any, ...]:
    """Return what MiniStack asks as AWS would: of a batch its call, of a log its stream."""
    if service == "sqs":
        action = action.removesuffix(_BATCH)
    if action in {"logs:CreateLogStream", "logs:PutLogEvents"}:
        resource_arn = f"{resource_arn.removesuffix(':*')}:log-stream:any"
    return access_key, action, service, region, resource_arn, service_context
