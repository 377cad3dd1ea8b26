"""The local system under IAM: each function and each instance may do what its role may.

MiniStack evaluates the policies that were deployed, as it does with AUTH=true; what it asks of a
request is what AWS asks (``request.py``).
"""

# Private members of MiniStack are this file's subject, as they are of spindown.local.emulator.
# ruff: noqa: PLC0415

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from spindown.ec2sim import Ec2Instance
from spindown.local.environment import ACCOUNT
from spindown.local.market import RoleCredentials
from spindown.local.system import LocalSystem
from tests.proof.grant.request import Ask, asked_by_aws

#: The body of the request that is being served.
_BODY: ContextVar[bytes] = ContextVar("body", default=b"")


@dataclass(frozen=True)
class Denial:
    """One thing that a role was denied."""

    role: str
    action: str
    resource: str

    def __str__(self) -> str:
        """Name it for people."""
        return f"{self.role}: {self.action} {self.resource}"


def _with_condition(
    context_of: Callable[..., dict[str, Any]],
    action: str,
    query: Mapping[str, Any] | None,
    path: str = "",
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return what S3 tells IAM of a request: also whether a write is only to be made once."""
    known = context_of(action, query, path, headers)
    once = (headers or {}).get("if-none-match")
    return {**known, "s3:if-none-match": once} if once and action == "s3:PutObject" else known


class Enforcement:
    """IAM of one local system, switched on."""

    def __init__(self) -> None:
        self.denied: list[Denial] = []
        #: Roles that were asked for anything.
        self.asked: set[str] = set()
        self._roles: dict[str, str] = {}
        self._ask: Any = None

    def credentials(self, instance: Ec2Instance) -> RoleCredentials:
        """Return keys of the role of an instance."""
        profile = (instance.order.template.profile_arn or "").rpartition("/")[2]
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
        from ministack.core import iam_actions, iam_evaluator

        self._system = system
        self._ask, pin, pin_body = (
            iam_evaluator.enforce,
            app.pin_request_origin,
            app.pin_signed_body,
        )

        def keep_body(body: bytes) -> None:
            _BODY.set(body)
            pin_body(body)

        context_of = iam_actions.s3_service_context
        iam_actions.s3_service_context = partial(_with_condition, context_of)
        app.AUTH, iam_evaluator.enforce, app.pin_signed_body = True, self._enforce, keep_body
        # Loopback has no TLS, which the policies of queues and bucket ask for.
        app.pin_request_origin = lambda address, _secure: pin(address, True)
        try:
            yield
        finally:
            iam_actions.s3_service_context = context_of
            app.AUTH, iam_evaluator.enforce = False, self._ask
            app.pin_request_origin, app.pin_signed_body = pin, pin_body

    def _enforce(
        self,
        access_key: str,
        action: str,
        service: str,
        region: str,
        resource_arn: str = "*",
        service_context: Mapping[str, Any] | None = None,
    ) -> Any:
        from ministack.core import iam_evaluator

        identity = str((iam_evaluator.resolve_caller_identity(access_key) or {}).get("userArn"))
        _, is_role, session = identity.partition("assumed-role/")
        if not is_role:
            return self._ask(access_key, action, service, region, resource_arn, service_context)
        role = session.partition("/")[0]
        self.asked.add(role)
        asked = Ask(action, resource_arn, service_context or {})
        for ask in asked_by_aws(asked, _BODY.get(), region, _has_object):
            answer = self._ask(
                access_key, ask.action, service, region, ask.resource, dict(ask.context)
            )
            if answer is not None:
                self.denied.append(Denial(role, ask.action, ask.resource))
                return answer
        return None

    def allows(self, access_key: str, action: str, resource: str) -> bool:
        """Tell whether a caller may do something of a service that MiniStack does not have."""
        service = action.partition(":")[0]
        return self._enforce(access_key, action, service, self._system.region, resource) is None

    def learn_profiles(self) -> None:
        """Look up whose role each instance profile holds, once they are deployed.

        The metadata is served by the thread that serves IAM: it cannot ask when it is asked.
        """
        found = self._system.client("iam").list_instance_profiles()["InstanceProfiles"]
        self._roles = {
            one["InstanceProfileName"]: one["Roles"][0]["RoleName"] for one in found if one["Roles"]
        }

    def statements(self, role: str) -> set[str]:
        """Return the ids of all statements of a role."""
        iam = self._system.client("iam")
        self._draw_in(iam, role)
        names = iam.list_role_policies(RoleName=role)["PolicyNames"]
        documents = [
            iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names
        ]
        return {one.get("Sid", "") for document in documents for one in document["Statement"]}

    @contextmanager
    def without(self, role: str, sid: str) -> Iterator[None]:
        """Take one statement from a role's policies."""
        iam = self._system.client("iam")
        self._draw_in(iam, role)
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

    def _draw_in(self, iam: Any, role: str) -> None:
        """Make what a role has by policies of their own part of it: CDK moves there what overflows.

        Source: IAM User Guide, "IAM and AWS STS quotas": 10,240 characters in a role.
        """
        for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
            arn, name = policy["PolicyArn"], policy["PolicyName"]
            version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
            found = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]
            self._put(iam, role, name, found["Document"])
            iam.detach_role_policy(RoleName=role, PolicyArn=arn)

    @staticmethod
    def _put(iam: Any, role: str, name: str, document: Any) -> None:
        iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(document))


def _has_object(bucket: str, key: str) -> bool:
    from ministack.services import s3

    return key in (s3._buckets.get(bucket) or {"objects": {}})["objects"]
