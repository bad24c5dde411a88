"""Checks of a Model that depend on other objects: its revisions, and hosts and names of other Models. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from clusters.base.errors import FieldError
from clusters.base.objects import Object, key_of, labels_of, name_of, namespace_of
from serving.types.annotations import LABEL_MODEL
from serving.types.code import code_format, refusal
from serving.types.validation import validate_model


def unknown_revisions(model: Object, revisions: Collection[str]) -> list[FieldError]:
    """Return a fault for each entry of `spec.traffic` with a revision that is not in `revisions`, the existing ones."""
    known = ", ".join(sorted(revisions)) or "none yet"
    return [
        FieldError(
            f"spec.traffic[{index}].revision", f"{entry['revision']} is not a revision of this model; known: {known}"
        )
        for index, entry in enumerate((model.get("spec") or {}).get("traffic") or ())
        if isinstance(entry, dict) and entry.get("revision") and entry["revision"] not in revisions
    ]


def collisions(model: Object, others: Iterable[Object]) -> list[FieldError]:
    """Return a fault for each host label (NAME, TAG-NAME) and Configuration (NAME, NAME-VARIANT) of another Model.

    Only other Models in the same namespace count.
    """
    errors: dict[str, FieldError] = {}
    for other in others:
        if namespace_of(other) != namespace_of(model) or key_of(other) == key_of(model):
            continue
        for mine, theirs, what in (
            (_hosts(model), _hosts(other), "host"),
            (_configurations(model), _configurations(other), "name"),
        ):
            for value in mine.keys() & theirs.keys():
                path = mine[value]
                message = f"the {what} {value} belongs to model {name_of(other)}: choose another"
                errors.setdefault(path, FieldError(path, message))
    return list(errors.values())


def claims(model: Object) -> set[str]:
    """Return the names that a Model needs for itself in a namespace: `host/NAME`, `host/TAG-NAME`, `name/NAME-VARIANT`.

    Accepts invalid objects: their invalid parts claim nothing.
    """
    return {f"host/{host}" for host in _hosts(model)} | {f"name/{name}" for name in _configurations(model)}


def forbidden_code(model: Object, allowed: Callable[[str], bool]) -> list[FieldError]:
    """Return a fault when the Model's format runs code and its namespace does not allow that."""
    model_format = code_format(model.get("spec") or {})
    namespace = namespace_of(model)
    if not model_format or allowed(namespace):
        return []
    return [FieldError("spec.modelFormat", refusal(model_format, namespace))]


def make_validator(
    models: Callable[[], Iterable[Object]],
    revisions: Callable[[], Iterable[Object]] | None = None,
    allows_code: Callable[[str], bool] = lambda _: True,
) -> Callable[[Object | None, Object], Sequence[FieldError]]:
    """Combine `validate_model`, `collisions`, `unknown_revisions` and `forbidden_code` into one admission check.

    - `models` returns all stored Models. Admission runs before a Model is stored, so the later one is refused.
    - `revisions` returns all Revisions. It is None where admission cannot list them; then the reconciler reports
      unknown revisions in the Model's conditions.
    - `allows_code` returns whether a namespace allows code; True where admission cannot know.
    """

    def validate(old: Object | None, new: Object) -> Sequence[FieldError]:
        errors = validate_model(old, new)
        if errors or (old is not None and old.get("spec") == new.get("spec")):
            return errors
        missing: list[FieldError] = []
        if revisions is not None and _traffic(new) != (_traffic(old) if old is not None else None):
            owner = (namespace_of(new), name_of(new))
            ours = (one for one in revisions() if (namespace_of(one), labels_of(one).get(LABEL_MODEL)) == owner)
            missing = unknown_revisions(new, {name_of(one) for one in ours})
        return [*collisions(new, models()), *missing, *forbidden_code(new, allows_code)]

    return validate


def _traffic(model: Object) -> object:
    return (model.get("spec") or {}).get("traffic")


def _hosts(model: Object) -> dict[str, str]:
    """Return the Model's host labels, each with the path of its field."""
    hosts = {name_of(model): "metadata.name"}
    for index, entry in enumerate(_items(model, "traffic")):
        if entry.get("tag"):
            hosts.setdefault(f"{entry['tag']}-{name_of(model)}", f"spec.traffic[{index}].tag")
    return hosts


def _configurations(model: Object) -> dict[str, str]:
    names = {name_of(model): "metadata.name"}
    for index, variant in enumerate(_items(model, "variants")):
        if variant.get("name"):
            names.setdefault(f"{name_of(model)}-{variant['name']}", f"spec.variants[{index}].name")
    return names


def _items(model: Object, field: str) -> list[dict[str, Any]]:
    """Return the mappings of a list in the spec. Other items become empty mappings, so that indexes stay."""
    spec = model.get("spec")
    items = spec.get(field) if isinstance(spec, dict) else None
    return [item if isinstance(item, dict) else {} for item in items] if isinstance(items, list) else []
