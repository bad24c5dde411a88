"""What the status of an EventSource says: whether anybody can send by it, and how many of its events wait. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from clusters.base.errors import Invalid
from eventing.auth.signatures import MLFLOW, SCHEMES, STANDARD, BadKey, Scheme
from eventing.auth.subjects import may_name
from eventing.mapping.event_source import EventSource, Reach, within_reach
from eventing.mapping.presets import MLFLOW as PRESET_MLFLOW
from eventing.objects.ports import OidcAuth

READY: Final = "Ready"
MAPPING: Final = "spec.mapping"
SHARE: Final = 10
"""By a tenth of what a webhook lets wait the number that wait may differ from what the status says."""


class Readiness(NamedTuple):
    """The condition `Ready`: `status` is True, False or Unknown; `message` says what to do when it is not True."""

    status: str
    reason: str
    message: str


def of_unreadable(error: Invalid) -> Readiness:
    """Of one that lets nobody in, since it is none."""
    is_mapping = any(cause.path.startswith(MAPPING) for cause in error.causes)
    return Readiness("False", "BadMapping" if is_mapping else "Invalid", str(error))


def of_rights(source: EventSource, reach: Reach) -> Readiness | None:
    """What is wrong with it whatever its key is; None for nothing."""
    if isinstance(source.auth, OidcAuth) and not may_name(source.namespace, source.auth.subject):
        message = (
            f"{source.auth.subject} is of another namespace: its events are taken by EventSources there, or in "
            "knodel-system"
        )
        return Readiness("False", "SubjectElsewhere", message)
    if not within_reach(source, reach).models:
        message = "its models are all in other namespaces, which only EventSources in knodel-system may change"
        return Readiness("False", "OutOfReach", message)
    return None


def of_tokens(auth: OidcAuth) -> Readiness:
    """Of one whose senders have tokens: the issuer is asked when one comes."""
    return Readiness("True", "Tokens", f"tokens of {auth.issuer} for {auth.subject} are taken")


def of_keys(source: EventSource, secret: str, texts: Sequence[str] | None) -> Readiness:
    """Of one whose senders sign; `texts` are what its Secret holds, None when there is no such Secret."""
    name = shlex.quote(source.source)
    remedy = f"`knodel events allow {name}` makes one"
    if texts is None:
        return Readiness("False", "SecretNotFound", f"there is no Secret {secret}: {remedy}")
    if not texts:
        return Readiness("False", "KeyUnusable", f"Secret {secret} has neither `current` nor `previous`: {remedy}")
    faults = [fault for text in texts if (fault := _fault(text, _schemes(source)))]
    if len(faults) == len(texts):
        message = f"Secret {secret}: {faults[0]}: `knodel events allow {name} --rotate` makes another"
        return Readiness("False", "KeyUnusable", message)
    return Readiness("True", "Keys", f"signatures by the keys of Secret {secret} are taken")


def of_forbidden(source: EventSource, secret: str) -> Readiness:
    """Of one whose key we may not read: the webhook has rights of its own."""
    message = (
        f"the controller may not read Secret {secret}, so its key is not checked: "
        f"`knodel events allow {shlex.quote(source.source)}` grants that"
    )
    return Readiness("Unknown", "SecretForbidden", message)


def step_of(most: int) -> int:
    """The step of `said_pending` where a webhook lets `most` events wait."""
    return max(1, most // SHARE)


def said_pending(former: int, pending: int, seen: int, step: int) -> int | None:
    """The number that the status is to say now instead of `former`, None to leave it; `seen` came since it was said.

    Fewer events than `step` cost no write, since a webhook counts them itself; that none wait is always said.
    """
    moved = abs(pending - former) >= step or (former >= step > pending) or former > pending == 0
    return pending if moved or seen >= step else None


def _schemes(source: EventSource) -> Sequence[Scheme]:
    """How its senders may sign: those of CloudEvents by Standard Webhooks, MLflow in its own way, others in either."""
    if source.mapping is None:
        return (STANDARD,)
    return (MLFLOW,) if source.mapping.preset == PRESET_MLFLOW else SCHEMES


def _fault(text: str, schemes: Sequence[Scheme]) -> str:
    """Why nothing is signed by this key."""
    words = ""
    for scheme in schemes:
        try:
            scheme.key(text)
            return ""
        except BadKey as error:
            words = str(error)
    return words
