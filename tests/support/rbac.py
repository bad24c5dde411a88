"""Rights as granted by RBAC objects, and as used by requests in an audit log. Pure.

RBAC: https://kubernetes.io/docs/reference/access-authn-authz/rbac/; audit events: `audit.k8s.io/v1`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from clusters.base.objects import Object

ALL = "*"
CREATED, FORBIDDEN = 201, 403  # HTTP


class Right(NamedTuple):
    """One verb on one resource (`pods/log` with its subresource); `name` and `namespace` are empty for "any"."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        which = f" {self.name}" if self.name else ""
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}{which}{where}"

    def covers(self, request: Right) -> bool:
        """Whether a grant of this right allows `request`."""
        return (
            self.verb in (ALL, request.verb)
            and self.group in (ALL, request.group)
            and self.resource in (ALL, request.resource)
            and self.namespace in ("", request.namespace)
            and self.name in ("", request.name)
        )


def granted(account: str, namespace: str, bindings: Iterable[Object], roles: Iterable[Object]) -> set[Right]:
    """Every right of the ServiceAccount; `bindings` and `roles` of both sorts, cluster-wide and namespaced."""
    by_name = {(role["kind"], role["metadata"].get("namespace", ""), role["metadata"]["name"]): role for role in roles}
    found: set[Right] = set()
    for binding in bindings:
        if not any(_is(subject, account, namespace) for subject in binding.get("subjects") or ()):
            continue
        within = binding["metadata"].get("namespace", "")
        reference = binding["roleRef"]
        of_role = within if reference["kind"] == "Role" else ""
        role = by_name[reference["kind"], of_role, reference["name"]]
        found.update(_rights(role, within))
    return found


def used(account: str, namespace: str, log: Iterable[str]) -> tuple[set[Right], set[Right]]:
    """(allowed, forbidden) requests of the ServiceAccount in the JSON lines of an audit log."""
    user = f"system:serviceaccount:{namespace}:{account}"
    allowed: set[Right] = set()
    forbidden: set[Right] = set()
    for line in log:
        if user not in line:
            continue
        event = json.loads(line)
        if event["user"]["username"] != user or "objectRef" not in event:
            continue
        code = (event.get("responseStatus") or {}).get("code")
        request = _request(event)
        (forbidden if code == FORBIDDEN else allowed).add(request)
        if code == CREATED and request.verb == "patch":  # server-side apply of what was not there needs both rights
            allowed.add(request._replace(verb="create"))
    return allowed, forbidden


def unused(grants: Iterable[Right], requests: Iterable[Right]) -> list[Right]:
    """Grants that no request needed."""
    seen = list(requests)
    return sorted(grant for grant in grants if not any(grant.covers(request) for request in seen))


def missing(grants: Iterable[Right], refused: Iterable[Right]) -> list[Right]:
    """Refused requests that no grant covers.

    Others are refused too: everything in a namespace that is being deleted, and what comes in the moment before an API
    server that has started anew knows the grants.
    """
    known = list(grants)
    return sorted(request for request in refused if not any(grant.covers(request) for grant in known))


def _is(subject: Object, account: str, namespace: str) -> bool:
    return (subject["kind"], subject["name"], subject.get("namespace")) == ("ServiceAccount", account, namespace)


def _rights(role: Object, namespace: str) -> Iterator[Right]:
    for rule in role.get("rules") or ():
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or ("",):
                        yield Right(verb, group, resource, namespace, name)


def _request(event: Object) -> Right:
    reference = event["objectRef"]
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    return Right(
        event["verb"],
        reference.get("apiGroup", ""),
        resource,
        reference.get("namespace", ""),
        reference.get("name", ""),
    )
