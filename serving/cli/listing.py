"""List objects of one kind, once or with `--watch`: the mechanism of all verbs that list objects.

On a terminal, the table of a watch is redrawn in place. Elsewhere a row is added whenever the row of an object has
changed, as `kubectl get --watch` does. With `-o json` each changed object is one line, and with `-o yaml` a document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from clusters.base.objects import Key, Kind, Object, key_of, timestamp
from serving.cli.base.output import Output
from serving.cli.base.tables import STATES
from serving.cli.context import Session
from serving.client.models.watching import DELETED, Snapshot, watch_objects

F = TypeVar("F", bound=Callable[..., Any])

TICK = 1.0  # s between two updates of the ages
GONE = "Deleted"
"""State in the row of a deleted object."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects to list, and the columns of their table. `row(object, now)` returns the cells.

    `order` and `shown` sort and filter the objects. `optional` and `wrapped` are those of `Output.table`. A `generic`
    list is of the kind `List` of `v1` in structured output.
    """

    kind: Kind
    heads: Sequence[str]
    row: Callable[[Object, datetime], Sequence[object]]
    selector: str = ""
    order: Callable[[Object], Any] | None = None
    shown: Callable[[Object], bool] = lambda _: True
    optional: Sequence[str] = ()
    wrapped: str = ""
    managed_fields: bool = False
    generic: bool = False

    def select(self, objects: Sequence[Object]) -> list[Object]:
        """Return the objects to show, in their order."""
        found = [one for one in objects if self.shown(one)]
        return sorted(found, key=self.order) if self.order is not None else found

    def table(self, output: Output, objects: Sequence[Object], now: datetime) -> str:
        """Return the text of the table."""
        rows = [self.row(one, now) for one in self.select(objects)]
        return output.table_text(self.heads, rows, optional=self.optional, wrapped=self.wrapped)


def watch_option(function: F) -> F:
    """Add the option `-w`."""
    return click.option("-w", "--watch", is_flag=True, help="Continue to show changes; Ctrl-C ends it.")(function)


def show_list(session: Session, listing: Listing, namespace: str | None, *, watch: bool) -> None:
    """Print the objects of a namespace, of all for None; with `watch`, continue with their changes without end."""
    client, output = session.client(), session.output
    if watch:
        snapshots = client.driver.iterate(
            watch_objects(client.core, listing.kind, namespace, selector=listing.selector, tick=TICK)
        )
        show = _show_structured if output.structured else _redraw if output.live else _Appended().show
        for snapshot in snapshots:
            show(output, listing, snapshot)
        return
    found = client.list(listing.kind, namespace, listing.selector)
    if output.structured:
        head = {"apiVersion": "v1", "kind": "List"} if listing.generic else found
        output.value({**head, "items": listing.select(found["items"])}, managed_fields=listing.managed_fields)
        return
    output.table(
        listing.heads,
        [listing.row(one, datetime.now(UTC)) for one in listing.select(found["items"])],
        optional=listing.optional,
        wrapped=listing.wrapped,
    )


def _show_structured(output: Output, listing: Listing, snapshot: Snapshot) -> None:
    """Print the changed objects. A deleted one has a deletionTimestamp, by which readers know that it is gone."""
    for change, obj in snapshot.changes:
        if not listing.shown(obj):
            continue
        if change == DELETED and not obj["metadata"].get("deletionTimestamp"):
            obj = {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": timestamp(datetime.now(UTC))}}
        output.record(obj, managed_fields=listing.managed_fields)


def _redraw(output: Output, listing: Listing, snapshot: Snapshot) -> None:
    output.redraw(listing.table(output, snapshot.objects, datetime.now(UTC)))


class _Appended:
    """Prints the table once, then a row for each object whose row has changed, apart from its age."""

    def __init__(self) -> None:
        self._printed: dict[Key, list[str]] | None = None

    def show(self, output: Output, listing: Listing, snapshot: Snapshot) -> None:
        """Print the rows of a snapshot that were not printed yet."""
        now, heads = datetime.now(UTC), [head.strip().lower() for head in listing.heads]

        def comparable(row: Sequence[object]) -> list[str]:
            return [str(cell) for head, cell in zip(heads, row, strict=True) if head != "age"]

        if self._printed is None:
            self._printed = {key_of(one): comparable(listing.row(one, now)) for one in snapshot.objects}
            rows = [listing.row(one, now) for one in listing.select(snapshot.objects)]
            output.lines(output.table_text(listing.heads, rows, fitted=False).splitlines())
            return
        added = []
        for change, obj in snapshot.changes:
            row = list(listing.row(obj, now))
            if change == DELETED:
                row[next((index for index, head in enumerate(heads) if head in STATES), -1)] = GONE
            if listing.shown(obj) and self._printed.get(key_of(obj)) != comparable(row):
                added.append(row)
            self._printed[key_of(obj)] = comparable(row)
        if added:
            present = [listing.row(one, now) for one in listing.select(snapshot.objects)]
            lines = output.table_text(listing.heads, [*present, *added], fitted=False).splitlines()
            output.lines(lines[-len(added) :])
