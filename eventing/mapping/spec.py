"""`EventSource.spec.mapping`: how the events of others become changes of Models. Data, and what is wrong with it. Pure.

    mapping:
      types: [org.example.model.*]              which events mean something; absent: all
      when: ["$[?@.stage == 'production']"]     paths that each have to select something
      id: $.data.run                            of the effect; absent: the event's
      time: $.data.finishedAt                   RFC 3339; absent: the event's
      model: "{$.data.name | label}"            with storageUri all that is needed
      storageUri: s3://models/{$.data.name}/{$.data.version}/
      version: [$.data.version, $.data.commit]  the first that is there

Values are templates (`templates.py`) over the event: its attributes, and `$.data`. With `preset` they replace those of
the preset (`presets.py`), and `when` is added to its conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from eventing.mapping.presets import PRESETS

Texts = str | list[str]
MOST: Final = 16
"""Of `types` and of `when`: each is another look at the event."""
VALUES: Final = ("id", "time", "model", "namespace", "storageUri", "digest", "version", "modelFormat", "metrics")
"""What is made of templates."""


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A path that has to select something; `otherwise` says in the ledger what it means that it does not."""

    path: str
    otherwise: str = ""


class MappingSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A mapping as it is written; an absent template is empty. `source` of the effect is a constant."""

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
        """Those that are given, by field."""
        given = {name: getattr(self, field) for field, name in _FIELDS.items()}
        return {name: texts for name, texts in given.items() if texts}


_FIELDS: Final = {
    field.name: field.encode_name for field in msgspec.structs.fields(MappingSpec) if field.encode_name in VALUES
}


def read_rules(mapping: Mapping[str, Any]) -> list[MappingSpec]:
    """The rules of a mapping, in the order in which they are tried: its own, or those of its preset under its own.

    Raises msgspec.ValidationError and ValueError for what has not the form of a mapping.
    """
    own = msgspec.convert(mapping, MappingSpec)
    if not own.preset:
        return [own]
    if own.preset not in PRESETS:
        raise ValueError(f"there is no preset {own.preset!r}, only {', '.join(PRESETS)}")
    given = {name: value for name, value in mapping.items() if name not in ("preset", "when")}
    return [
        msgspec.convert({**rule, **given, "when": [*rule.get("when", ()), *mapping.get("when", ())]}, MappingSpec)
        for rule in PRESETS[own.preset]
    ]
