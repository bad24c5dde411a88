"""The comparison of granted with used rights."""

from __future__ import annotations

import json
from typing import Any

from tests.support.rbac import Right, granted, missing, unused, used

ACCOUNT, NAMESPACE = "knodel-controller", "knodel-system"
SUBJECT = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}


def role(kind: str, name: str, *rules: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    """A Role or ClusterRole."""
    return {"kind": kind, "metadata": {"name": name, "namespace": namespace}, "rules": list(rules)}


def binding(kind: str, name: str, subject: dict[str, str], namespace: str = "") -> dict[str, Any]:
    """A binding to the role of that kind and name."""
    metadata = {"name": name, "namespace": namespace}
    return {"metadata": metadata, "roleRef": {"kind": kind, "name": name}, "subjects": [subject]}


def event(verb: str, resource: str, code: int = 200, user: str = ACCOUNT, **reference: str) -> str:
    """A line of an audit log."""
    username = f"system:serviceaccount:{NAMESPACE}:{user}"
    body = {"verb": verb, "user": {"username": username}, "objectRef": {"resource": resource, **reference}}
    return json.dumps(body | {"responseStatus": {"code": code}})


def test_a_grant_is_each_verb_on_each_resource_where_the_binding_gives_it() -> None:
    wide = role("ClusterRole", "wide", {"apiGroups": ["knodel.dev"], "resources": ["models"], "verbs": ["get", "list"]})
    leases = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["update"],
        "resourceNames": ["l"],
    }
    narrow = role("Role", "narrow", leases, namespace=NAMESPACE)
    other = binding("ClusterRole", "wide", {**SUBJECT, "name": "somebody"})

    found = granted(
        ACCOUNT, NAMESPACE, [binding("ClusterRole", "wide", SUBJECT), binding("Role", "narrow", SUBJECT, NAMESPACE)],
        [wide, narrow],
    )  # fmt: skip

    assert found == {
        Right("get", "knodel.dev", "models"),
        Right("list", "knodel.dev", "models"),
        Right("update", "coordination.k8s.io", "leases", NAMESPACE, "l"),
    }
    assert granted(ACCOUNT, NAMESPACE, [other], [wide, narrow]) == set()


def test_requests_of_the_account_are_told_from_those_of_others_and_refused_from_allowed() -> None:
    log = [
        event("patch", "models", apiGroup="knodel.dev", subresource="status", namespace="default", name="m"),
        event("get", "secrets", 403, namespace="default", name="s"),
        event("list", "pods", user="knodel-autoscaler"),
        event("patch", "services", 201, apiGroup="serving.knative.dev", namespace="default", name="m"),
    ]

    allowed, forbidden = used(ACCOUNT, NAMESPACE, log)

    assert allowed == {
        Right("patch", "knodel.dev", "models/status", "default", "m"),
        Right("patch", "serving.knative.dev", "services", "default", "m"),
        Right("create", "serving.knative.dev", "services", "default", "m"),
    }
    assert forbidden == {Right("get", "", "secrets", "default", "s")}


def test_a_grant_that_no_request_needed_is_unused() -> None:
    request = Right("update", "coordination.k8s.io", "leases", NAMESPACE, "l")
    grants = {
        Right("update", "coordination.k8s.io", "leases", NAMESPACE, "l"),
        Right("update", "coordination.k8s.io", "leases", NAMESPACE, "other"),
        Right("*", "coordination.k8s.io", "leases"),
        Right("update", "coordination.k8s.io", "leases/status"),
    }

    assert unused(grants, [request]) == [
        Right("update", "coordination.k8s.io", "leases", NAMESPACE, "other"),
        Right("update", "coordination.k8s.io", "leases/status"),
    ]


def test_a_refused_request_is_missing_unless_a_grant_covers_it() -> None:
    grant = Right("create", "", "events")
    covered = Right("create", "", "events", "ending", "e")
    other = Right("get", "", "secrets", "default", "s")

    assert missing([grant], [covered, other]) == [other]
