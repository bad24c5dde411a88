"""Waiting for a Model: follow its changes until it is ready, has failed for good, or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable

from clusters.errors import Gone, NotFound
from clusters.objects import MODEL, Object, condition_of, generation_of, version_of
from serving.apis.durations import parse_duration
from serving.cli.client import Client
from serving.cli.errors import CommandError, NotInTime, UsageError
from serving.cli.output import Progress


def parse_timeout(text: str) -> float:
    """Seconds of a duration such as `300s` or `5m`. Raises UsageError."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--timeout {text!r}: {error}") from error


def wait_until_ready(client: Client, name: str, namespace: str, timeout: float, generation: int = 0) -> Object:
    """The Model once it is ready at `generation` or a later one.

    Raises CommandError with the reason as soon as its newest version failed, NotInTime after `timeout` seconds.
    """
    progress = Progress()
    try:
        return _follow(client, name, namespace, timeout, lambda model: _judge(model, generation), progress)
    finally:
        progress.clear()


def _judge(model: Object, generation: int) -> bool:
    status = model.get("status") or {}
    if int(status.get("observedGeneration", 0)) < max(generation, generation_of(model)):
        return False
    ready = condition_of(model, "Ready") or {}
    if ready.get("status") == "False":
        reason, message = ready.get("reason", "Failed"), ready.get("message", "no reason given")
        raise CommandError(f"model {model['metadata']['name']} is not ready: {reason}: {message}")
    return ready.get("status") == "True"


def _follow(
    client: Client, name: str, namespace: str, timeout: float, done: Callable[[Object], bool], progress: Progress
) -> Object:
    deadline = time.monotonic() + timeout
    while True:
        model = client.get(MODEL, name, namespace)
        left = deadline - time.monotonic()
        if done(model):
            return model
        if left <= 0:
            raise NotInTime(f"model {name} was not ready within {timeout:g} s: {_state(model)}")
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


def _state(model: Object) -> str:
    ready = condition_of(model, "Ready")
    if ready is None:
        return "waiting for the platform to look at it"
    words = [str(ready[part]) for part in ("reason", "message") if ready.get(part)]
    return ": ".join(words) or f"Ready is {ready['status']}"
