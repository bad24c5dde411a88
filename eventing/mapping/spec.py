"""The schema of `EventSource.spec.mapping`, which maps foreign events to changes of Models. Pure.

    mapping:
      types: [org.example.model.*]              event types that match; default: all
      when: ["$[?@.stage == 'production']"]     paths that must each select a node
      id: $.data.run                            id of the change; default: the event's
      time: $.data.finishedAt                   RFC 3339; default: the event's
      model: "{$.data.name | label}"            required, like storageUri
      storageUri: s3://models/{$.data.name}/{$.data.version}/
      version: [$.data.version, $.data.commit]  the first that has a value

Values are templates (`templates.py`) over the event's attributes and `$.data`. With `preset`, they replace those of the
preset (`presets.py`), and `when` is added to its conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from eventing.mapping.presets import PRESETS

Texts = str | list[str]
MOST: Final = 16
"""Maximum number of `types` and of `when`: each visits the event again."""
VALUES: Final = ("id", "time", "model", "namespace", "storageUri", "digest", "version", "modelFormat", "metrics")
"""Fields that are templates."""


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A path that must select a node; `otherwise`: the reason in the ledger if it selects none."""

    path: str
    otherwise: str = ""


class MappingSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A mapping as written by users; an absent template is empty. `source`: the source of the change, a constant."""

    preset: str = ""
    types: list[str] = []
    when: list[str | Condition] = []
    source: str = ""
    id: Texts = ""
    time: Texts = ""
    model: Texts = ""
    namespace: Texts = ""
    storage_uri: Texts = ""
    digest: Texts = ""
    version: Texts = ""
    model_format: Texts = ""
    metrics: Texts = ""

    def templates(self) -> Mapping[str, Texts]:
        """Return the templates that are set, by field."""
        given = {name: getattr(self, field) for field, name in _FIELDS.items()}
        return {name: texts for name, texts in given.items() if texts}


_FIELDS: Final = {
    field.name: field.encode_name for field in msgspec.structs.fields(MappingSpec) if field.encode_name in VALUES
}


def read_rules(mapping: Mapping[str, Any]) -> list[MappingSpec]:
    """Return the rules of a mapping in the order in which they are tried: its own, or its preset's with its own values.

    Raises msgspec.ValidationError or ValueError for a malformed mapping.
    """
    own = msgspec.convert(mapping, MappingSpec)
    if not own.preset:
        return [own]
    if own.preset not in PRESETS:
        raise ValueError(f"unknown preset {own.preset!r}: use one of {', '.join(PRESETS)}")
    given = {name: value for name, value in mapping.items() if name not in ("preset", "when")}
    return [
        msgspec.convert({**rule, **given, "when": [*rule.get("when", ()), *mapping.get("when", ())]}, MappingSpec)
        for rule in PRESETS[own.preset]
    ]
