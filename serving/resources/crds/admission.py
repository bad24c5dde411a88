"""What a definition cannot say of a Model, as ValidatingAdmissionPolicy and binding. Pure.

CEL on a CustomResourceDefinition sees of the metadata the name alone, so the annotation that says why a Model changes
is checked here. Names and all of the spec are rules of the definition itself, which hold without any policy.
"""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

from clusters.objects import MODEL, Object
from serving.apis.annotations import ANNOTATION_CAUSE
from serving.apis.model import By, Cause
from serving.resources.crds.schema import quoted

GROUP_VERSION = "admissionregistration.k8s.io/v1"
NAME = f"cause.{MODEL.resource}"

_TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9A-Fa-f]{4})*"'


def make_policies() -> list[Object]:
    """The policy and its binding."""
    return [_policy(), _binding()]


def _policy() -> Object:
    cause = f"object.metadata.annotations[{quoted(ANNOTATION_CAUSE)}]"
    old = f"oldObject.metadata.?annotations[{quoted(ANNOTATION_CAUSE)}]"
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [MODEL.group],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [MODEL.plural],
                    }
                ]
            },
            "matchConditions": [
                {"name": "has-cause", "expression": f"has(object.metadata.annotations) && {_has(cause)}"},
                {"name": "changes-it", "expression": f"oldObject == null || {old} != optional.of({cause})"},
            ],
            "validations": [
                {
                    "expression": f"{cause} == '' || ({_matches(cause, _pairs())} && {_matches(cause, _by())})",
                    "message": f'metadata.annotations.{ANNOTATION_CAUSE}: must be JSON as in {{"by": "user"}}, '
                    f"by one of {', '.join(get_args(By))}",
                    "reason": "Invalid",
                }
            ],
        },
    }


def _binding() -> Object:
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    }


def _pairs() -> str:
    """A JSON object of texts under known keys."""
    pair = rf'\s*"(?:{"|".join(field.name for field in fields(Cause))})"\s*:\s*{_TEXT}\s*'
    return rf"\s*\{{{pair}(?:,{pair})*\}}\s*"


def _by() -> str:
    """The key `by` with one of its values; a quote within a text is escaped, so this stands outside of texts."""
    return rf'.*[{{,]\s*"by"\s*:\s*"(?:{"|".join(get_args(By))})"\s*[,}}].*'


def _has(expression: str) -> str:
    holder, _, key = expression.rpartition("[")
    return f"{key.removesuffix(']')} in {holder}"


def _matches(value: str, pattern: str) -> str:
    return f"{value}.matches({quoted(f'^(?s:{pattern})$')})"
