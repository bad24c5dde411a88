"""Validate a Model before it is sent to kube-apiserver, which cannot run all checks of the control API.

CEL rules and the schema see only one object. Some checks need other objects: that a host or a name belongs to another
Model, or that a revision exists. They use the functions of the control API, with the same messages and field paths.
The reconciler runs them too, and reports the faults of other clients' Models in their conditions.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from clusters.base.errors import Forbidden, Invalid, NotFound
from clusters.base.objects import MODEL, NAMESPACE, REVISION, Object, name_of, namespace_of
from serving.client.api import ApiCalls
from serving.client.effects import Call


def check_change(api: ApiCalls, old: Object, patch: dict[str, Any]) -> Call[None]:
    """Validate the Model after the merge patch. Raises Invalid."""
    from clusters.base.patches import merge_patch

    yield from _check(api, old, merge_patch(old, patch))


def check_new(api: ApiCalls, model: Object) -> Call[None]:
    """Validate a new Model. Raises Invalid."""
    yield from _check(api, None, model)


def _check(api: ApiCalls, old: Object | None, new: Object) -> Call[None]:
    from serving.types.code import allows_code, code_format  # heavy; only these checks need them
    from serving.types.references import make_validator
    from serving.types.validation import validate_model

    faults, namespace, spec = validate_model(old, new), namespace_of(new), new.get("spec") or {}
    if not faults and (old is None or old.get("spec") != spec):
        allowed = True
        try:
            models = (yield from api.list(MODEL, namespace))["items"]
            revisions = (yield from api.list(REVISION, namespace))["items"] if spec.get("traffic") else []
            if code_format(spec):
                with suppress(Forbidden, NotFound):  # in an absent namespace the Model cannot be created either
                    allowed = allows_code((yield from api.get(NAMESPACE, namespace)))
            faults = make_validator(lambda: models, lambda: revisions, lambda _: allowed)(old, new)
        except Forbidden:  # the caller may not read other objects: the reconciler reports the faults in the conditions
            pass
    if faults:
        raise Invalid(f"{MODEL} {name_of(new)!r}", faults)
