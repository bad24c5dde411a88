"""Labels, annotations and common parts of the kinds EventSource and ModelEvent.

Objects are parsed with msgspec. In its Structs an absent text is empty, and `storage_uri` is `storageUri` in JSON.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

LABEL_EVENT_SOURCE: Final = "knodel.dev/event-source"
"""Label of a ModelEvent: the EventSource that accepted it (`training`)."""
LABEL_MODEL: Final = "knodel.dev/model"
"""Label of a ModelEvent: the name of the Model that it changes (`magika`)."""
LABEL_IGNORED: Final = "knodel.dev/ignored"
"""Label of a ModelEvent that changes no Model (`true`); the reason is in `spec.ignored`."""
LABEL_DIRECTION: Final = "knodel.dev/direction"
"""Label of a ModelEvent that is sent to the event sink: `out`."""
ANNOTATION_REPLAY: Final = "knodel.dev/replay"
"""Annotation of a ModelEvent, set by users: when a replay was requested (`2026-01-01T12:00:00Z`)."""
ANNOTATION_NEWEST: Final = "knodel.dev/newest-event"
"""Annotation of a Model: the newest event applied to it, as JSON (`{"source":"/train/magika","id":"42",…}`)."""
MANAGER: Final = "knodel-eventing"
"""Field manager in `metadata.managedFields`."""

Phase = Literal["Accepted", "Applied", "Superseded", "Ignored", "Failed"]
FINAL_PHASES: Final = frozenset({"Applied", "Superseded", "Ignored", "Failed"})
"""Phases that only a replay changes."""


class ObjectPart(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A part of an object. Absent fields have their defaults; unknown ones, of another version, are ignored.

    Values from JSON have no reference cycles, so the garbage collector does not track them.
    """


class ModelRef(ObjectPart, frozen=True):
    """A reference to a Model by namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ModelChange(ObjectPart, frozen=True):
    """The fields of a Model that an event sets; an empty text means not set."""

    storage_uri: str
    digest: str = ""
    version: str = ""
    model_format: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the change as in `spec.change`."""
        return dict(msgspec.to_builtins(self))
