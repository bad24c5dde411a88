"""The condition Ready of an EventSource and the number of its pending events, as its status reports them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from clusters.base.errors import Invalid
from eventing.auth.signatures import MLFLOW, SCHEMES, STANDARD, BadKey, Scheme
from eventing.auth.subjects import is_allowed_subject
from eventing.mapping.event_source import Reach, within_reach
from eventing.mapping.presets import MLFLOW as PRESET_MLFLOW
from eventing.objects.ports import EventSource, OidcAuth

READY: Final = "Ready"
MAPPING: Final = "spec.mapping"
SHARE: Final = 10
"""The reported number of pending events may differ from the real one by this fraction (1/10) of the limit."""


class Readiness(NamedTuple):
    """The condition `Ready`: `status` is True, False or Unknown; `message` contains the remedy if it is not True."""

    status: str
    reason: str
    message: str


def of_unreadable(error: Invalid) -> Readiness:
    """Return the condition of an EventSource that cannot be parsed, and therefore accepts no events."""
    is_mapping = any(cause.path.startswith(MAPPING) for cause in error.causes)
    return Readiness("False", "BadMapping" if is_mapping else "Invalid", str(error))


def of_rights(source: EventSource, reach: Reach) -> Readiness | None:
    """Return the condition of an EventSource with a wrong subject or wrong models, None if both are valid."""
    if isinstance(source.auth, OidcAuth) and not is_allowed_subject(source.namespace, source.auth.subject):
        message = (
            f"{source.auth.subject} is a service account of another namespace: create the EventSource there, or in "
            "knodel-system"
        )
        return Readiness("False", "SubjectElsewhere", message)
    if not within_reach(source, reach).models:
        message = "all its models are in other namespaces, which only EventSources in knodel-system may change"
        return Readiness("False", "OutOfReach", message)
    return None


def of_tokens(auth: OidcAuth) -> Readiness:
    """Return the condition of an EventSource with OIDC. The issuer is only contacted when a token arrives."""
    return Readiness("True", "Tokens", f"accepts tokens of {auth.issuer} for {auth.subject}")


def of_keys(source: EventSource, secret: str, texts: Sequence[str] | None) -> Readiness:
    """Return the condition of an EventSource with HMAC; `texts`: the keys in its Secret, None if it does not exist."""
    name = shlex.quote(source.source)
    remedy = f"`knodel events allow {name}` creates one"
    if texts is None:
        return Readiness("False", "SecretNotFound", f"Secret {secret} does not exist: {remedy}")
    if not texts:
        return Readiness("False", "KeyUnusable", f"Secret {secret} has neither `current` nor `previous`: {remedy}")
    # CloudEvents are signed as Standard Webhooks, MLflow's webhooks in their own way, other documents in either.
    schemes: Sequence[Scheme] = (STANDARD,)
    if source.mapping is not None:
        schemes = (MLFLOW,) if source.mapping.preset == PRESET_MLFLOW else SCHEMES
    faults = [fault for text in texts if (fault := _fault(text, schemes))]
    if len(faults) == len(texts):
        message = f"Secret {secret}: {faults[0]}: `knodel events allow {name} --rotate` creates a new key"
        return Readiness("False", "KeyUnusable", message)
    return Readiness("True", "Keys", f"accepts signatures by the keys of Secret {secret}")


def of_forbidden(source: EventSource, secret: str) -> Readiness:
    """Return the condition of an EventSource whose key the controller may not read; the webhook may have the right."""
    message = (
        f"the controller may not read Secret {secret}, so its key is not checked: "
        f"`knodel events allow {shlex.quote(source.source)}` grants that"
    )
    return Readiness("Unknown", "SecretForbidden", message)


def step_of(most: int) -> int:
    """Return the step of `pending_to_report` for a limit of `most` pending events."""
    return max(1, most // SHARE)


def pending_to_report(former: int, pending: int, new: int, step: int) -> int | None:
    """Return the number of pending events to write to the status instead of `former`, None to leave it.

    `new`: events that arrived since `former` was written. Changes below `step` are not written, because a webhook
    counts new events itself; 0 is always written.
    """
    moved = abs(pending - former) >= step or (former >= step > pending) or former > pending == 0
    return pending if moved or new >= step else None


def _fault(text: str, schemes: Sequence[Scheme]) -> str:
    """Return why the key is invalid in all `schemes`, or an empty text."""
    fault = ""
    for scheme in schemes:
        try:
            scheme.key(text)
            return ""
        except BadKey as error:
            fault = str(error)
    return fault
