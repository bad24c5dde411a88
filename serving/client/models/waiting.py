"""Wait for a condition of a Model: watch it until the condition holds, has failed for good, or time is up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from clusters.base.errors import Gone, NotFound
from clusters.base.objects import MODEL, Object, condition_of, generation_of, version_of
from serving.client.api import ApiCalls
from serving.client.effects import Call, Item, Items, Tell, each, now, sleep
from serving.client.errors import ClientError, TimedOut, Unreachable
from serving.client.replicas import replica_problems
from serving.types.lifecycle import CONFIGURATIONS_READY, OBJECTS_APPLIED, READY, RECOVERING, ROUTES_READY

LONGEST_WATCH = 600.0  # s; an API server ends longer watches by itself
PAUSE = 0.5  # s between two attempts to reach the server again


@contextmanager
def report_stored_change(name: str) -> Iterator[None]:
    """Re-raise an Unreachable of the block with the note that the change to the Model is stored.

    The message also has the command that waits for the change.
    """
    try:
        yield
    except Unreachable as error:
        stored = f"the change to model {name} is stored, but has not taken effect yet"
        raise Unreachable(f"{stored}: {error}, then `knodel wait {name}` waits for it") from error


def wait_until_ready(api: ApiCalls, name: str, namespace: str, timeout: float, generation: int = 0) -> Call[Object]:
    """Wait until the newest version is ready at `generation` or later, and return the Model.

    `generation` is that of the stored change, 0 for none. Raises ClientError with the reason as soon as that version
    has failed for good, TimedOut after `timeout` seconds, Unreachable.
    """
    return (yield from _wait(api, name, namespace, timeout, generation, READY))


def wait_until_routed(api: ApiCalls, name: str, namespace: str, timeout: float, generation: int) -> Call[Object]:
    """Wait until the traffic split is applied, also if the newest version is not ready. Raises as above."""
    return (yield from _wait(api, name, namespace, timeout, generation, ROUTES_READY))


def is_routed(model: Object, generation: int) -> bool:
    """Return whether the traffic split is applied. Raises ClientError when it cannot be."""
    return _holds(model, generation, ROUTES_READY)


def wait_until(
    api: ApiCalls, name: str, namespace: str, timeout: float, done: Callable[[Object], bool]
) -> Call[Object]:
    """Wait until `done(model)` and return the Model. Raises TimedOut after `timeout` seconds."""
    last: Object = {}

    def check(model: Object) -> Call[bool]:
        nonlocal last
        last = model
        yield from ()
        return done(model)

    if (yield from each(states(api, name, namespace, timeout), check)):
        return last
    reasons = "; ".join([_state(last), *(yield from replica_problems(api, name, namespace))])
    raise TimedOut(f"model {name} was not ready within {timeout:g} s: {reasons}")


def states(api: ApiCalls, name: str, namespace: str, timeout: float | None) -> Items[Object]:
    """Yield a Model now and after each change, for `timeout` seconds (None: without limit).

    Tolerates outages of a server that has responded, for its `restart_window`. Raises NotFound, Unreachable.
    """
    outage = Outage(api.server.restart_window)
    deadline = (yield from now()) + (math.inf if timeout is None else timeout)
    while True:
        try:
            model = yield from api.get(MODEL, name, namespace)
            outage.reset()
            yield Item(model)
            left = deadline - (yield from now())
            if left <= 0:
                return
            yield Tell(f"{name}: {_state(model)}")
            events = yield from api.open_watch(MODEL, namespace, name, version_of(model), min(left, LONGEST_WATCH))
            while event := (yield from api.next_event(events)):
                kind, model = event
                if kind == "DELETED":
                    raise NotFound(f"model {name} was deleted meanwhile")
                yield Item(model)
                yield Tell(f"{name}: {_state(model)}")
                if (yield from now()) > deadline:
                    break
        except Gone:
            continue  # the resourceVersion has expired: read the Model again
        except Unreachable as error:
            yield from outage.pause(error, deadline)


def _wait(api: ApiCalls, name: str, namespace: str, timeout: float, generation: int, condition: str) -> Call[Object]:
    with report_stored_change(name) if generation else nullcontext():
        return (
            yield from wait_until(api, name, namespace, timeout, lambda model: _holds(model, generation, condition))
        )


def has_failed(model: Object, type: str) -> bool:
    """Return whether the condition is False until the Model is changed. Pure.

        ObjectsApplied  ConfigurationsReady  condition  why it may become True without a change
        True            Unknown              Ready      the newest version starts; the previous one, with traffic, fails
        True            False, Recovering    either     the newest version was ready; its replicas restart
        else                                 either     it does not become True

    `kn service wait` also continues to wait when Ready is False for a short time.
    """
    if (condition_of(model, type) or {}).get("status") != "False":
        return False
    applied, newest = (condition_of(model, one) or {} for one in (OBJECTS_APPLIED, CONFIGURATIONS_READY))
    starts = type == READY and newest.get("status") == "Unknown"
    recovers = newest.get("status") == "False" and newest.get("reason") == RECOVERING
    return not (applied.get("status") == "True" and (starts or recovers))


def _holds(model: Object, generation: int, type: str) -> bool:
    """Return whether the condition is True for the current spec. Raises ClientError when it cannot become True."""
    status = model.get("status") or {}
    if int(status.get("observedGeneration", 0)) < max(generation, generation_of(model)):
        return False
    condition = condition_of(model, type) or {}
    if has_failed(model, type):
        reason, message = condition.get("reason", "Failed"), condition.get("message", "no reason given")
        raise ClientError(f"model {model['metadata']['name']} is not ready: {reason}: {message}")
    return condition.get("status") == "True"


class Outage:
    """Tolerate an outage of a server that has responded before, for at most `longest` seconds.

    A restart or a lost connection then does not end the waiting.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._since: float | None = None
        self._responded = False

    def pause(self, error: Unreachable, deadline: float) -> Call[None]:
        """Wait before a retry. Raises `error` if the server never responded, or if a time limit is reached."""
        time = yield from now()
        if self._since is None:
            self._since = time
        if not self._responded or time + PAUSE > min(deadline, self._since + self._longest):
            raise error
        yield from sleep(PAUSE)

    def reset(self) -> None:
        """Record that the server responds."""
        self._responded, self._since = True, None


def _state(model: Object) -> str:
    ready = condition_of(model, READY)
    if ready is None:
        return "waiting for its first status"
    words = [str(ready[part]) for part in ("reason", "message") if ready.get(part)]
    return ": ".join(words) or f"Ready is {ready['status']}"
