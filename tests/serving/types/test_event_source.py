"""Validation of EventSources: every fault has the path of its field."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.base.objects import EVENT_SOURCE
from serving.crds.definition import make_schema
from serving.types.event_source import validate_event_source
from tests.manifests.checker import faults as schema_faults

GOOD: dict[str, Any] = {
    "source": "/train/*",
    "auth": {"hmac": {"secretRef": {"name": "keys"}}},
    "models": ["magika", "others/*"],
    "storagePrefixes": ["s3://models/", "file:///models", "https://models.example.org/a"],
    "allowCode": True,
    "createModels": False,
}
OIDC = {"issuer": "https://issuer.example.org", "audience": "knodel", "subject": "system:serviceaccount:default:b"}


def source(**spec: Any) -> dict[str, Any]:
    wanted = {name: value for name, value in {**GOOD, **spec}.items() if value is not ...}
    return {
        "apiVersion": "knodel.dev/v1alpha1",
        "kind": "EventSource",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": wanted,
    }


def paths(obj: dict[str, Any]) -> set[str]:
    return {fault.path for fault in validate_event_source(None, obj)}


@pytest.mark.parametrize("spec", [{}, {"auth": {"oidc": OIDC}}, {"source": "*"}, {"mapping": None, "allowCode": None}])
def test_good_ones_are_taken_by_both_doors(spec: dict[str, Any]) -> None:
    assert paths(source(**spec)) == set()
    assert list(schema_faults(make_schema(EVENT_SOURCE), {**source(**spec), "metadata": {"name": "train"}})) == []


@pytest.mark.bad_input("object-others")
@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("source", ..., "spec.source"),
        ("source", "/a b", "spec.source"),
        ("source", "/a*b", "spec.source"),
        ("source", "/" * 1025, "spec.source"),
        ("auth", ..., "spec.auth"),
        ("auth", {}, "spec.auth"),
        ("auth", {**GOOD["auth"], "oidc": OIDC}, "spec.auth"),
        ("auth", {"hmac": {}}, "spec.auth.hmac.secretRef"),
        ("auth", {"hmac": {"secretRef": {"name": "No"}}}, "spec.auth.hmac.secretRef.name"),
        ("auth", {"oidc": {**OIDC, "issuer": "http://issuer"}}, "spec.auth.oidc.issuer"),
        ("auth", {"oidc": {**OIDC, "subject": ""}}, "spec.auth.oidc.subject"),
        ("auth", {"oidc": {**OIDC, "subject": "system:serviceaccount:others:b"}}, "spec.auth.oidc.subject"),
        ("auth", {"token": "x"}, "spec.auth"),
        ("models", ..., "spec.models"),
        ("models", [], "spec.models"),
        ("models", ["a/b/c"], "spec.models[0]"),
        ("models", [7], "spec.models[0]"),
        ("storagePrefixes", ..., "spec.storagePrefixes"),
        ("storagePrefixes", ["s3://a/../b"], "spec.storagePrefixes[0]"),
        ("storagePrefixes", ["models/"], "spec.storagePrefixes[0]"),
        ("storagePrefixes", ["s3://a/%2e"], "spec.storagePrefixes[0]"),
        ("allowCode", "yes", "spec.allowCode"),
        ("mapping", [], "spec.mapping"),
        ("model", "magika", "spec.model"),
    ],
)
def test_a_fault_is_named_with_its_field(field: str, value: Any, path: str) -> None:
    assert path in paths(source(**{field: value}))


def test_a_status_may_be_written_whatever_older_rules_let_in() -> None:
    old = source(source="/a b")
    assert validate_event_source(old, {**old, "status": {"conditions": []}}) == ()
