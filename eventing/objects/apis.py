"""The words of our event kinds: labels, annotations, and the parts that EventSources and ModelEvents are made of.

Objects are read with msgspec, in whose Structs an absent text is empty; `storage_uri` is `storageUri` on the wire.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

LABEL_EVENT_SOURCE: Final = "knodel.dev/event-source"
"""On a ModelEvent: the EventSource that let it in (`training`)."""
LABEL_MODEL: Final = "knodel.dev/model"
"""On a ModelEvent: the name of the Model that it is for (`magika`)."""
LABEL_IGNORED: Final = "knodel.dev/ignored"
"""On a ModelEvent that means nothing here (`true`); `spec.ignored` says why."""
LABEL_DIRECTION: Final = "knodel.dev/direction"
"""On a ModelEvent of ours, which goes to the event sink: `out`."""
ANNOTATION_REPLAY: Final = "knodel.dev/replay"
"""On a ModelEvent, by people: since when it is to be tried anew (`2026-01-01T12:00:00Z`)."""
ANNOTATION_NEWEST: Final = "knodel.dev/newest-event"
"""On a Model: the newest event that was applied to it, as JSON (`{"source":"/train/magika","id":"42",…}`)."""
MANAGER: Final = "knodel-eventing"
"""Our name in `metadata.managedFields`."""

Phase = Literal["Accepted", "Applied", "Superseded", "Ignored", "Failed"]
FINAL_PHASES: Final = frozenset({"Applied", "Superseded", "Ignored", "Failed"})
"""What an event does not leave by itself."""


class Part(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A part of an object: absent fields have their defaults, unknown ones are of another version and left alone.

    JSON leads to no cycle, so the garbage collector looks at none.
    """


class ModelRef(Part, frozen=True):
    """Which Model is meant."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Change(Part, frozen=True):
    """What an event changes of a Model; an empty text is what it does not say."""

    storage_uri: str
    digest: str = ""
    version: str = ""
    model_format: str = ""

    def to_json(self) -> dict[str, Any]:
        """As it stands in `spec.change`."""
        return dict(msgspec.to_builtins(self))
