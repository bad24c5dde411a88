"""Test the watch of objects: snapshots over ended watches, outages and expired versions, from scripted servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clusters.base.errors import Gone
from clusters.base.objects import MODEL, Object
from serving.client.blocking import BlockingDriver, HttpTransport
from serving.client.errors import Unreachable
from serving.client.models import waiting, watching
from serving.client.models.watching import Snapshot, watch_objects

LOST = Unreachable("the platform does not respond")


def model(name: str, version: int) -> Object:
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)}}


class Server:
    """The properties of a server that the watch reads."""

    restart_window = 5.0


class ScriptedApi:
    """An API whose lists and watches are scripted: an empty tuple ends a watch, and the end of the script the test."""

    server = Server()

    def __init__(self, *script: Any) -> None:
        self._script: Iterator[Any] = iter(script)
        self.versions: list[str] = []

    def _next(self) -> Any:
        step = next(self._script, KeyboardInterrupt())
        if isinstance(step, BaseException):
            raise step
        return step

    def list(self, *_: Any) -> Any:
        """Return the next step as a list."""
        yield from ()
        return {"metadata": {"resourceVersion": "1"}, "items": self._next()}

    def open_watch(self, kind: Any, namespace: Any, name: str, version: str, *_: Any) -> Any:
        """Record the version from which the watch starts."""
        yield from ()
        self.versions.append(version)

    def next_event(self, _: Any) -> Any:
        """Return the next step as an event; None for an empty tuple."""
        yield from ()
        return self._next() or None


def watch(api: ScriptedApi) -> Iterator[Snapshot]:
    """Run the watch of all Models."""
    operation: Any = watch_objects(api, MODEL, None)  # type: ignore[arg-type]
    yield from BlockingDriver(HttpTransport()).iterate(operation)


def drained(api: ScriptedApi) -> tuple[list[list[str]], list[list[tuple[str, str]]]]:
    """Return the names of the objects, and the changes, of each snapshot until the script ends."""
    snapshots, found = watch(api), []
    with pytest.raises(KeyboardInterrupt):
        while True:
            found.append(next(snapshots))
    names = [[one["metadata"]["name"] for one in snapshot.objects] for snapshot in found]
    return names, [[(change, obj["metadata"]["name"]) for change, obj in snapshot.changes] for snapshot in found]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the pauses of the watch to 0."""
    for module in (waiting, watching):
        monkeypatch.setattr(module, "PAUSE", 0.0)


def test_the_first_snapshot_has_all_objects_and_later_ones_the_changes() -> None:
    names, changes = drained(
        ScriptedApi([model("b", 1), model("a", 1)], ("MODIFIED", model("b", 2)), ("DELETED", model("a", 3)))
    )

    assert names == [["a", "b"], ["a", "b"], ["b"]]
    assert changes == [[("ADDED", "b"), ("ADDED", "a")], [("MODIFIED", "b")], [("DELETED", "a")]]


def test_without_objects_there_is_a_snapshot_too() -> None:
    assert drained(ScriptedApi([])) == ([[]], [[]])


def test_a_watch_that_ended_continues_at_its_last_version() -> None:
    api = ScriptedApi([model("a", 1)], ("MODIFIED", model("a", 7)), (), ("BOOKMARK", model("", 9)), ())

    assert drained(api)[1] == [[("ADDED", "a")], [("MODIFIED", "a")]]
    assert api.versions == ["1", "7", "9"]


@pytest.mark.parametrize("fault", [Gone("too old"), LOST])
def test_after_a_gap_only_differences_are_changes(fault: Exception) -> None:
    before, after = [model("same", 1), model("changed", 1), model("gone", 1)], [model("same", 1), model("changed", 5)]
    _, changes = drained(ScriptedApi(before, fault, [*after, model("new", 4)]))

    assert changes[1] == [("DELETED", "gone"), ("MODIFIED", "changed"), ("ADDED", "new")]


def test_a_gap_without_differences_makes_no_snapshot() -> None:
    assert len(drained(ScriptedApi([model("a", 1)], LOST, LOST, [model("a", 1)]))[0]) == 1


def test_a_server_that_never_responded_is_an_error() -> None:
    with pytest.raises(Unreachable):
        list(watch(ScriptedApi(LOST)))


def test_an_outage_longer_than_a_restart_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "restart_window", -1.0)
    monkeypatch.setattr(watching, "LEAST_OUTAGE", -1.0)
    with pytest.raises(Unreachable):
        list(watch(ScriptedApi([], LOST)))
