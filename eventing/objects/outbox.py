"""The transactional outbox of a Model, `status.outbox`: events about its rollouts that are still to be sent. Pure.

The controller writes an entry in the same status update as the transition that it reports, so neither is lost. The
emitter removes the entry once a ModelEvent contains it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from clusters.base.objects import Object
from eventing.objects.apis import ObjectPart

STARTED: Final = "dev.knodel.rollout.started.v1"
"""The rollout of a new version has started."""
PROGRESSED: Final = "dev.knodel.rollout.progressed.v1"
"""The version's share of the traffic has changed, or the rollout was paused or resumed."""
PROMOTED: Final = "dev.knodel.rollout.promoted.v1"
"""The version has all traffic."""
ROLLED_BACK: Final = "dev.knodel.rollout.rolledback.v1"
"""The version's traffic was returned to the stable version."""
FAILED: Final = "dev.knodel.rollout.failed.v1"
"""The version did not become ready."""

MOST_ENTRIES: Final = 100
"""Maximum entries of one Model: without an emitter the object grows, and etcd refuses objects above 1.5 MiB."""


class OutboxEntry(ObjectPart, frozen=True):
    """An event that is to be sent; `sequence` orders the events of a Model as text.

    `causationid` and `causationsource`: id and source of the event that caused it, empty if there is none.
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
        """Return the entry as in the status, without empty fields."""
        return dict(msgspec.to_builtins(self))


def outbox_of(model: Mapping[str, Any]) -> list[OutboxEntry]:
    """Return the Model's entries, oldest first. Malformed entries are skipped, because they cannot be sent."""
    written = (model.get("status") or {}).get("outbox")
    entries = []
    for one in written if isinstance(written, Sequence) else ():
        with suppress(msgspec.ValidationError):
            entries.append(msgspec.convert(one, OutboxEntry))
    return entries
