"""ValidatingAdmissionPolicies for rules that a CustomResourceDefinition cannot express. Pure.

CEL rules of a CustomResourceDefinition see only the name in the metadata. So these policies check the annotation with
the cause of a Model's change, and that the service account of an EventSource is in its namespace. All other rules are
in the definitions, and hold without a policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from clusters.base.objects import EVENT_SOURCE, MODEL, Kind, Object
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from eventing.auth.subjects import ACCOUNT
from serving.types.annotations import ANNOTATION_CAUSE
from serving.types.model import CAUSE, By
from serving.types.schema import quoted

GROUP_VERSION = "admissionregistration.k8s.io/v1"
NAME = f"cause.{MODEL.resource}"
SUBJECT = f"subject.{EVENT_SOURCE.resource}"

_TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9A-Fa-f]{4})*"'


def make_policies() -> list[Object]:
    """Return the policy for Models and its binding."""
    return [_cause(), _binding(NAME)]


def make_event_source_policies() -> list[Object]:
    """Return the policy for EventSources and its binding."""
    return [_subject(), _binding(SUBJECT)]


def _cause() -> Object:
    cause = f"object.metadata.annotations[{quoted(ANNOTATION_CAUSE)}]"
    old = f"oldObject.metadata.?annotations[{quoted(ANNOTATION_CAUSE)}]"
    return _policy(
        NAME,
        MODEL,
        {
            "has-cause": f"has(object.metadata.annotations) && {_has(cause)}",
            "changes-it": f"oldObject == null || {old} != optional.of({cause})",
        },
        f"{cause} == '' || ({_matches(cause, _pairs())} && {_matches(cause, _by())})",
        f'metadata.annotations.{ANNOTATION_CAUSE}: must be JSON as in {{"by": "user"}}, '
        f"by one of {', '.join(get_args(By))}",
    )


def _subject() -> Object:
    subject = "object.spec.auth.oidc.subject"
    return _policy(
        SUBJECT,
        EVENT_SOURCE,
        {
            "is-account": f"has(object.spec.auth.oidc) && {subject}.startsWith({quoted(ACCOUNT)})",
            "changes-it": "oldObject == null || object.spec != oldObject.spec",
        },
        f"object.metadata.namespace in [{quoted(SYSTEM_NAMESPACE)}, {subject}.split(':')[{ACCOUNT.count(':')}]]",
        "spec.auth.oidc.subject: must be a service account of the EventSource's own namespace: create the "
        f"EventSource in the namespace of the account, or in {SYSTEM_NAMESPACE}",
    )


def _policy(name: str, kind: Kind, conditions: Mapping[str, str], rule: str, message: str) -> Object:
    """Return a policy that requires `rule` of objects for which all `conditions` hold."""
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [kind.group],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [kind.plural],
                    }
                ]
            },
            "matchConditions": [
                {"name": condition, "expression": expression} for condition, expression in conditions.items()
            ],
            "validations": [{"expression": rule, "message": message, "reason": "Invalid"}],
        },
    }


def _binding(name: str) -> Object:
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }


def _pairs() -> str:
    """Return a pattern of a JSON object with known keys and string values."""
    pair = rf'\s*"(?:{"|".join(CAUSE)})"\s*:\s*{_TEXT}\s*'
    return rf"\s*\{{{pair}(?:,{pair})*\}}\s*"


def _by() -> str:
    """Return a pattern of the key `by` and its value. Quotes in strings are escaped, so it matches no string."""
    return rf'.*[{{,]\s*"by"\s*:\s*"(?:{"|".join(get_args(By))})"\s*[,}}].*'


def _has(expression: str) -> str:
    holder, _, key = expression.rpartition("[")
    return f"{key.removesuffix(']')} in {holder}"


def _matches(value: str, pattern: str) -> str:
    return f"{value}.matches({quoted(f'^(?s:{pattern})$')})"
