"""Waiting for a Model: follow its changes until a condition holds, has failed for good, or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from clusters.base.durations import parse_duration
from clusters.base.errors import Gone, NotFound
from clusters.base.objects import MODEL, Object, condition_of, generation_of, version_of
from serving.cli.base.errors import CommandError, NotInTime, Unreachable, UsageError
from serving.cli.base.output import Progress
from serving.cli.client.client import Client
from serving.cli.client.replicas import troubles
from serving.types.lifecycle import CONFIGURATIONS_READY, OBJECTS_APPLIED, READY, RECOVERING, ROUTES_READY

PAUSE = 0.5  # s between two tries to reach a server that answered before


def parse_timeout(text: str) -> float:
    """Seconds of a duration such as `300s` or `5m`. Raises UsageError."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--timeout {text!r}: {error}") from error


@contextmanager
def change_stored(name: str) -> Iterator[None]:
    """Name the stored change to the Model, and how to wait for it, when the server is lost inside.

    Raises Unreachable.
    """
    try:
        yield
    except Unreachable as error:
        stored = f"model {name} is stored with this change, which has not taken effect yet"
        raise Unreachable(f"{stored}: {error}, then `knodel wait {name}` waits for it") from error


def wait_until_ready(client: Client, name: str, namespace: str, timeout: float, generation: int = 0) -> Object:
    """The Model once its newest version is ready, at `generation` or a later one.

    `generation` is that of the change that the command stored, 0 when it stored none. Raises CommandError with the
    reason as soon as that version failed for good, NotInTime after `timeout` seconds, Unreachable.
    """
    return _wait(client, name, namespace, timeout, generation, READY)


def wait_until_routed(client: Client, name: str, namespace: str, timeout: float, generation: int) -> Object:
    """The Model once its traffic split is in force, whatever became of its newest version. Raises as above."""
    return _wait(client, name, namespace, timeout, generation, ROUTES_READY)


def is_routed(model: Object, generation: int) -> bool:
    """Whether the traffic split is in force. Raises CommandError when it cannot be."""
    return _holds(model, generation, ROUTES_READY)


def wait_until(client: Client, name: str, namespace: str, timeout: float, done: Callable[[Object], bool]) -> Object:
    """The Model once `done` says so. Raises NotInTime after `timeout` seconds."""
    progress = Progress()
    try:
        return _follow(client, name, namespace, timeout, done, progress)
    finally:
        progress.clear()


def _wait(client: Client, name: str, namespace: str, timeout: float, generation: int, condition: str) -> Object:
    with change_stored(name) if generation else nullcontext():
        return wait_until(client, name, namespace, timeout, lambda model: _holds(model, generation, condition))


def has_failed(model: Object, type: str) -> bool:
    """Whether the condition is False and stays so until somebody changes the Model. Pure.

        ObjectsApplied  ConfigurationsReady  condition  why it may become True by itself
        True            Unknown              Ready      the newest version starts; the one before, with traffic, fails
        True            False, Recovering    either     the newest version was ready; its replicas are started again
        else                                 either     it does not

    In the spirit of `kn service wait`, whom a Ready that is False for a moment does not end.
    """
    if (condition_of(model, type) or {}).get("status") != "False":
        return False
    applied, newest = (condition_of(model, one) or {} for one in (OBJECTS_APPLIED, CONFIGURATIONS_READY))
    starts = type == READY and newest.get("status") == "Unknown"
    recovers = newest.get("status") == "False" and newest.get("reason") == RECOVERING
    return not (applied.get("status") == "True" and (starts or recovers))


def _holds(model: Object, generation: int, type: str) -> bool:
    """Whether the condition is True for the present spec. Raises CommandError when it cannot become so."""
    status = model.get("status") or {}
    if int(status.get("observedGeneration", 0)) < max(generation, generation_of(model)):
        return False
    condition = condition_of(model, type) or {}
    if has_failed(model, type):
        reason, message = condition.get("reason", "Failed"), condition.get("message", "no reason given")
        raise CommandError(f"model {model['metadata']['name']} is not ready: {reason}: {message}")
    return condition.get("status") == "True"


def _follow(
    client: Client, name: str, namespace: str, timeout: float, done: Callable[[Object], bool], progress: Progress
) -> Object:
    deadline, outage = time.monotonic() + timeout, Outage(client.restarts_within)
    while True:
        try:
            model = client.get(MODEL, name, namespace)
        except Unreachable as error:
            outage.endure(error, deadline)
            continue
        outage.over()
        left = deadline - time.monotonic()
        if done(model):
            return model
        if left <= 0:
            said = "; ".join([_state(model), *troubles(client, name, namespace)])
            raise NotInTime(f"model {name} was not ready within {timeout:g} s: {said}")
        progress.show(f"{name}: {_state(model)}")
        try:
            for kind, changed in client.watch(MODEL, namespace, name, version_of(model), left):
                if kind == "DELETED":
                    raise NotFound(f"model {name} was deleted meanwhile")
                if done(changed):
                    return changed
                progress.show(f"{name}: {_state(changed)}")
                if time.monotonic() > deadline:
                    break
        except Gone:
            continue  # the history moved on: look again
        except Unreachable as error:
            outage.endure(error, deadline)


class Outage:
    """How long a server that has answered before does not: its restart, or a lost connection, ends no waiting."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._since: float | None = None
        self._answered = False

    def endure(self, error: Unreachable, deadline: float) -> None:
        """Pause before another try. Raises the error when it was never there, is gone for long, or time is up."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if not self._answered or now + PAUSE > min(deadline, self._since + self._longest):
            raise error
        time.sleep(PAUSE)

    def over(self) -> None:
        """It answers."""
        self._answered, self._since = True, None


def _state(model: Object) -> str:
    ready = condition_of(model, READY)
    if ready is None:
        return "waiting for the platform to look at it"
    words = [str(ready[part]) for part in ("reason", "message") if ready.get(part)]
    return ": ".join(words) or f"Ready is {ready['status']}"
