"""Answers to `kubectl auth can-i` and `kubectl auth whoami`, for the caller that has the token. Pure.

Source: k8s.io/api authorization/v1 and authentication/v1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from clusters.base.objects import POD, Kind, Object
from serving.control_api.discovery import READ_VERBS, WRITE_VERBS

USER: Final = "knodel"
"""The name of the caller that has the token."""
REVIEWS: Final = {
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    ("authorization.k8s.io", "v1", "selfsubjectrulesreviews"): "SelfSubjectRulesReview",
    ("authentication.k8s.io", "v1", "selfsubjectreviews"): "SelfSubjectReview",
}
"""Kinds of reviews by group, version and plural."""


def answer(review: str, asked: Object, kinds: Iterable[Kind], writable: Collection[Kind]) -> Object:
    """Return the status of a review of that kind, whose `spec` is in `asked`."""
    if review == "SelfSubjectReview":
        return {"userInfo": {"username": USER, "groups": ["system:authenticated"]}}
    if review == "SelfSubjectRulesReview":
        return {"resourceRules": _rules(kinds, writable), "nonResourceRules": [], "incomplete": False}
    spec: Any = asked.get("spec")
    attributes = spec.get("resourceAttributes") if isinstance(spec, dict) else None
    if not isinstance(attributes, dict):
        return {"allowed": True, "reason": "the token permits reading every path"}
    found = [kind for kind in kinds if _fits(kind, attributes)]
    if not found:
        return {"allowed": False, "reason": "this platform does not serve this resource"}
    verb = str(attributes.get("verb"))
    if all(verb in _verbs(kind, kind in writable, str(attributes.get("subresource") or "")) for kind in found):
        return {"allowed": True}
    return {"allowed": False, "reason": "only the platform may do this"}


def _fits(kind: Kind, attributes: Object) -> bool:
    group, resource = attributes.get("group") or "", attributes.get("resource") or ""
    return group in (kind.group, "*") and resource in (kind.plural, "*")


def _verbs(kind: Kind, writable: bool, subresource: str) -> Collection[str]:
    if subresource:
        return ("get",) if subresource == "status" or (subresource == "log" and kind == POD) else ()
    return (*READ_VERBS, *WRITE_VERBS, "*") if writable else READ_VERBS


def _rules(kinds: Iterable[Kind], writable: Collection[Kind]) -> list[Object]:
    return [
        {
            "apiGroups": [kind.group],
            "resources": [kind.plural],
            "verbs": sorted((*READ_VERBS, *(WRITE_VERBS if kind in writable else ()))),
        }
        for kind in kinds
    ]
