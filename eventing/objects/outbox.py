"""`status.outbox` of a Model: what became of its versions and is still to be told. Pure.

Who writes a Model's status puts an entry in together with the transition that it tells of, so that neither is without
the other. The emitter takes it out once a ModelEvent holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from clusters.base.objects import Object
from eventing.objects.apis import Part

STARTED: Final = "dev.knodel.rollout.started.v1"
"""A version is to follow another one."""
PROGRESSED: Final = "dev.knodel.rollout.progressed.v1"
"""It gets another share of the traffic, or is paused or resumed."""
PROMOTED: Final = "dev.knodel.rollout.promoted.v1"
"""It has all the traffic."""
ROLLED_BACK: Final = "dev.knodel.rollout.rolledback.v1"
"""It had traffic or was to get it, and has none any more."""
FAILED: Final = "dev.knodel.rollout.failed.v1"
"""It did not become ready."""

MOST_ENTRIES: Final = 100
"""Of one Model: with nobody to take them out its object grows, and a store refuses objects above 1.5 MiB."""


class Entry(Part, frozen=True):
    """One event that is to be sent; `sequence` orders those of a Model as text.

    `causationid` and `causationsource` are id and source of the event that caused it, empty when none did.
    """

    id: str
    type: str
    time: str
    sequence: str
    subject: str = ""
    data: Mapping[str, Any] = {}
    causationid: str = ""
    causationsource: str = ""
    traceparent: str = ""

    def to_json(self) -> Object:
        """As it stands in the status; empty parts are left out."""
        return dict(msgspec.to_builtins(self))


def outbox_of(model: Mapping[str, Any]) -> list[Entry]:
    """The Model's entries, oldest first; what is none is passed over, as nobody could send it."""
    written = (model.get("status") or {}).get("outbox")
    return [entry for one in written or () if (entry := _read(one))] if isinstance(written, Sequence) else []


def _read(value: object) -> Entry | None:
    try:
        return msgspec.convert(value, Entry)
    except msgspec.ValidationError:
        return None
