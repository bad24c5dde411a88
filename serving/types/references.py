"""Checks of a Model that need to know other objects: revisions that it names, hosts and names that it shares. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from clusters.base.errors import FieldError
from clusters.base.objects import Object, key_of, labels_of, name_of, namespace_of
from serving.types.annotations import LABEL_MODEL
from serving.types.code import refusal, runs_code
from serving.types.validation import validate_model


def unknown_revisions(model: Object, revisions: Collection[str]) -> list[FieldError]:
    """A fault for each entry of `spec.traffic` that names none of the Model's living `revisions`."""
    known = ", ".join(sorted(revisions)) or "none yet"
    return [
        FieldError(
            f"spec.traffic[{index}].revision", f"{entry['revision']} is no revision of this model; known: {known}"
        )
        for index, entry in enumerate((model.get("spec") or {}).get("traffic") or ())
        if isinstance(entry, dict) and entry.get("revision") and entry["revision"] not in revisions
    ]


def collisions(model: Object, others: Iterable[Object]) -> list[FieldError]:
    """A fault for each host label (NAME, TAG-NAME) and Configuration (NAME, NAME-VARIANT) that another Model has.

    Only Models of the same namespace count, and the Model itself does not.
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
                message = f"the {what} {value} belongs to model {name_of(other)} already: choose another"
                errors.setdefault(path, FieldError(path, message))
    return list(errors.values())


def claims(model: Object) -> set[str]:
    """All that a Model takes for itself in its namespace: `host/NAME`, `host/TAG-NAME`, `name/NAME-VARIANT`.

    Takes whatever an object may hold: parts that are no Model's claim nothing.
    """
    return {f"host/{host}" for host in _hosts(model)} | {f"name/{name}" for name in _configurations(model)}


def forbidden_code(model: Object, allowed: Callable[[str], bool]) -> list[FieldError]:
    """A fault when the Model's format runs code and its namespace, asked by name, does not allow that."""
    model_format = str((model.get("spec") or {}).get("modelFormat") or "")
    namespace = namespace_of(model)
    if not runs_code(model_format) or allowed(namespace):
        return []
    return [FieldError("spec.modelFormat", refusal(model_format, namespace))]


def make_validator(
    models: Callable[[], Iterable[Object]],
    revisions: Callable[[], Iterable[Object]] | None = None,
    allows_code: Callable[[str], bool] = lambda _: True,
) -> Callable[[Object | None, Object], Sequence[FieldError]]:
    """`validate_model`, `collisions`, `unknown_revisions` and `forbidden_code` as one admission check.

    `models` gives all Models now, `revisions` all Revisions (None where the door cannot see them: the reconciler then
    says it on the Model), `allows_code` whether a namespace does (True where the door cannot see that). Who comes later
    is refused, because the check is asked before a Model is stored.
    """

    def validate(old: Object | None, new: Object) -> Sequence[FieldError]:
        errors = validate_model(old, new)
        if errors or (old is not None and old.get("spec") == new.get("spec")):
            return errors
        missing: list[FieldError] = []
        if revisions is not None and _traffic(new) != (_traffic(old) if old is not None else None):
            missing = unknown_revisions(new, _revisions_of(new, revisions()))
        return [*collisions(new, models()), *missing, *forbidden_code(new, allows_code)]

    return validate


def _traffic(model: Object) -> object:
    return (model.get("spec") or {}).get("traffic")


def _revisions_of(model: Object, revisions: Iterable[Object]) -> set[str]:
    name, namespace = name_of(model), namespace_of(model)
    ours = (one for one in revisions if namespace_of(one) == namespace and labels_of(one).get(LABEL_MODEL) == name)
    return {name_of(revision) for revision in ours}


def _hosts(model: Object) -> dict[str, str]:
    """Host labels with the field that asks for them."""
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
    """The mappings of a list of the spec; what is none becomes an empty one, so that indexes stay."""
    spec = model.get("spec")
    items = spec.get(field) if isinstance(spec, dict) else None
    return [item if isinstance(item, dict) else {} for item in items] if isinstance(items, list) else []
