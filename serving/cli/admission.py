"""Validate a Model before it is sent to kube-apiserver, which cannot run all checks of the control API.

CEL rules and the schema see only one object. Some checks need other objects: that a host or a name belongs to another
Model, or that a revision exists. They use the functions of the control API, with the same messages and field paths.
The reconciler runs them too, and reports the faults of other clients' Models in their conditions.
"""

from __future__ import annotations

from typing import Any

from clusters.base.errors import Forbidden, Invalid, NotFound
from clusters.base.objects import MODEL, NAMESPACE, REVISION, Kind, Object, name_of, namespace_of
from serving.client.client import Client


def check_change(client: Client, old: Object, patch: dict[str, Any]) -> None:
    """Validate the Model after the merge patch. Raises Invalid."""
    from clusters.base.patches import merge_patch

    _check(client, old, merge_patch(old, patch))


def check_new(client: Client, model: Object) -> None:
    """Validate a new Model. Raises Invalid."""
    _check(client, None, model)


def _check(client: Client, old: Object | None, new: Object) -> None:
    from serving.types.code import allows_code  # heavy; only these checks need them
    from serving.types.references import make_validator
    from serving.types.validation import validate_model

    def others(kind: Kind) -> list[Object]:
        found: list[Object] = client.list(kind, namespace_of(new))["items"]
        return found

    def code_allowed(namespace: str) -> bool:
        try:
            return allows_code(client.get(NAMESPACE, namespace))
        except (Forbidden, NotFound):  # as below; in an absent namespace the Model cannot be created either
            return True

    try:
        faults = make_validator(lambda: others(MODEL), lambda: others(REVISION), code_allowed)(old, new)
    except Forbidden:  # the caller may not read other objects: the reconciler reports the faults in the conditions
        faults = validate_model(old, new)
    if faults:
        raise Invalid(f"{MODEL} {name_of(new)!r}", faults)
