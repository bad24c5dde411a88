"""Checks of a Model that need to know other objects: revisions that it names, hosts and names that it shares. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from clusters.errors import FieldError
from clusters.objects import Object, key_of, name_of, namespace_of
from serving.apis.validation import validate_model


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


def make_validator(models: Callable[[], Iterable[Object]]) -> Callable[[Object | None, Object], Sequence[FieldError]]:
    """`validate_model` and `collisions` as one admission check; `models` gives all Models now.

    Who comes later is refused, because the check is asked before a Model is stored.
    """

    def validate(old: Object | None, new: Object) -> Sequence[FieldError]:
        if old is not None and old.get("spec") == new.get("spec"):
            return validate_model(old, new)
        return validate_model(old, new) or collisions(new, models())

    return validate


def _hosts(model: Object) -> dict[str, str]:
    """Host labels with the field that asks for them."""
    hosts = {name_of(model): "metadata.name"}
    for index, entry in enumerate((model.get("spec") or {}).get("traffic") or ()):
        if entry.get("tag"):
            hosts.setdefault(f"{entry['tag']}-{name_of(model)}", f"spec.traffic[{index}].tag")
    return hosts


def _configurations(model: Object) -> dict[str, str]:
    names = {name_of(model): "metadata.name"}
    for index, variant in enumerate((model.get("spec") or {}).get("variants") or ()):
        names.setdefault(f"{name_of(model)}-{variant['name']}", f"spec.variants[{index}].name")
    return names
