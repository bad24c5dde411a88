"""What the control API asks of a Model before it stores it, asked here where a real API server cannot.

CEL and a schema see one object; that a host or a name belongs to another Model, or that a revision is not there, needs
the others. The same functions answer with the same words and field paths; the reconciler says on the Model what came
past this door.
"""

from __future__ import annotations

from typing import Any

from clusters.base.errors import Forbidden, Invalid, NotFound
from clusters.base.objects import MODEL, NAMESPACE, REVISION, Kind, Object, name_of, namespace_of
from serving.cli.client.client import Client


def check_change(client: Client, old: Object, patch: dict[str, Any]) -> None:
    """Whether the Model may become what the merge patch makes of it. Raises Invalid."""
    from clusters.base.patches import merge_patch

    _check(client, old, merge_patch(old, patch))


def check_new(client: Client, model: Object) -> None:
    """Whether the Model may be made. Raises Invalid."""
    _check(client, None, model)


def _check(client: Client, old: Object | None, new: Object) -> None:
    from serving.types.code import allows_code  # imports that only this door needs
    from serving.types.references import make_validator
    from serving.types.validation import validate_model

    def others(kind: Kind) -> list[Object]:
        found: list[Object] = client.list(kind, namespace_of(new))["items"]
        return found

    def code_allowed(namespace: str) -> bool:
        try:
            return allows_code(client.get(NAMESPACE, namespace))
        except (Forbidden, NotFound):  # as below; without a namespace there will be no Model either
            return True

    try:
        faults = make_validator(lambda: others(MODEL), lambda: others(REVISION), code_allowed)(old, new)
    except Forbidden:  # the caller may not look at the others: the reconciler looks, and says it on the Model
        faults = validate_model(old, new)
    if faults:
        raise Invalid(f"{MODEL} {name_of(new)!r}", faults)
