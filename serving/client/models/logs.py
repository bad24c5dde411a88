"""Read the logs of a Model's replicas, or follow them, including those of replicas that start later."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from clusters.base.errors import KnodelError, NotFound
from clusters.base.objects import LABEL_REVISION, MODEL, POD, REVISION, Object, is_deleting, name_of, uid_of
from serving.client.api import ApiCalls, log_path
from serving.client.effects import Call, Item, Items, Spawn, Tell, now, read_line, receive, work
from serving.client.errors import ClientError, DoesNotExist, Unreachable, UsageError
from serving.client.models.waiting import Outage
from serving.client.replicas import container_of, not_started_reason, status_of
from serving.types.annotations import LABEL_MODEL

if TYPE_CHECKING:
    from clusters.embedded.kubelet.pod_logs import EndedLog

POLL_INTERVAL = 1.0  # s between two searches for new replicas


class ReplicaLine(NamedTuple):
    """A line of a replica's log with its end of line; `alone`: no other replica has lines."""

    replica: str
    line: bytes
    alone: bool = False


@dataclass(slots=True)
class _Followed:
    """A replica whose log was opened.

    `reading`: whether an operation reads the log. `restarts`: restarts of the container when reading began.
    `has_lines`: whether a line has arrived since.
    """

    reading: bool
    restarts: int
    has_lines: bool = False


def logs(
    api: ApiCalls, name: str, namespace: str, *, state: Path | None = None, follow: bool = False,
    tail: int | None = None, revision: str = "", previous: bool = False, poll_interval: float = POLL_INTERVAL,
) -> Items[ReplicaLine]:  # fmt: skip
    """Yield the log lines of the replicas of a Model, of all versions or of `revision` (a name or a version label).

    `tail` limits the lines of each log. `previous`: of the containers before their last restart. Without a replica,
    yield the logs of replicas that ended in the last day, from the state folder `state` of a local platform. With
    `follow`, continue until the Model is deleted. Raises NotFound, DoesNotExist without a log, ClientError when no
    replica has started, UsageError.
    """
    if follow and previous:
        raise UsageError("the logs before a restart have ended: omit either `follow` or `previous`")
    model, selector, chosen = (yield from api.get(MODEL, name, namespace)), f"{LABEL_MODEL}={name}", [""]
    if revision:
        from serving.reconciler.rollout.commands import revisions_named  # heavy; only a chosen version needs it

        chosen = revisions_named(revision, model, (yield from api.list(REVISION, namespace, selector))["items"])
        selector += f",{LABEL_REVISION} in ({','.join(chosen)})"
    if follow:
        yield from _follow_all(api, name, namespace, selector, tail, poll_interval)
        return
    pods = (yield from api.list(POD, namespace, selector))["items"]
    if not pods:
        yield from _ended(name, namespace, chosen, tail, state)
        return
    query = {"previous": "true"} if previous else {}
    if tail is not None:
        query["tailLines"] = str(tail)
    if previous:
        pods = [pod for pod in pods if status_of(pod).get("restartCount")]
        if not pods:
            raise DoesNotExist(f"no container of {name} was restarted: `knodel logs {name}` prints the current logs")
    else:
        pods = yield from _with_log(name, pods)
    for pod in pods:
        path = log_path(namespace, name_of(pod))
        stream = yield from api.open_lines(path, {**query, "container": container_of(pod)})
        while line := (yield from read_line(stream)):
            yield Item(ReplicaLine(name_of(pod), line, len(pods) == 1))


def _ended(
    name: str, namespace: str, chosen: Sequence[str], tail: int | None, state: Path | None
) -> Items[ReplicaLine]:
    """Yield the logs of ended replicas of the chosen revisions ("": of all).

    Raises DoesNotExist when none is stored.
    """
    from clusters.embedded.kubelet.pod_logs import ended_logs, last_lines  # only for a local platform

    found: list[EndedLog] = []
    for revision in chosen:
        labels = {LABEL_MODEL: name} | ({LABEL_REVISION: revision} if revision else {})
        if state is not None:
            found += yield from work(partial(ended_logs, state, namespace, labels))
    if not found:
        raise DoesNotExist(f"model {name} has no replica now: `knodel explain {name}` shows why, a request starts one")
    yield Tell(f"model {name} has no replica now: these are the logs of {len(found)} that ended in the last day", True)
    for log in found:
        content = yield from work(partial(last_lines, log.path, tail))
        for line in content.splitlines(keepends=True):
            yield Item(ReplicaLine(log.pod, line, len(found) == 1))


def _with_log(model: str, pods: list[Object]) -> Call[list[Object]]:
    """Return the Pods whose container has started, and warn of the others. Raises ClientError when none has."""
    waiting = {name_of(pod): reason for pod in pods if (reason := not_started_reason(pod))}
    if len(waiting) == len(pods):
        raise ClientError(f"no replica of model {model} has started: " + "; ".join(waiting.values()))
    for reason in waiting.values():
        yield Tell(reason, True)
    return [pod for pod in pods if name_of(pod) not in waiting]


def _follow_all(
    api: ApiCalls, model: str, namespace: str, selector: str, tail: int | None, poll_interval: float
) -> Items[ReplicaLine]:
    """Yield the lines of all replicas until the Model is deleted.

    `tail` limits the lines of replicas that exist at the start; those of later replicas are read from the beginning.
    Tolerates outages of a server that has responded, for its `restart_window`. Raises Unreachable.
    """
    followed: dict[str, _Followed] = {}
    warned: set[str] = set()
    first, outage = True, Outage(api.server.restart_window)
    while True:
        pods, is_deleted = yield from _pods_of(api, model, namespace, selector, outage)
        warnings = []
        for pod in pods:
            if reason := not_started_reason(pod):
                warnings.append(reason)
                continue
            query = _query_of(pod, followed, tail if first else None)
            if query is not None:
                yield Spawn(_key_of(pod), _read(api, log_path(namespace, name_of(pod)), name_of(pod), query))
        if any(one.reading for one in followed.values()):
            warned.clear()
        elif not is_deleted:
            warnings.append(f"no replica of model {model} runs now: waiting for one, Ctrl-C stops")
        for text in warnings:
            if text not in warned:
                warned.add(text)
                yield Tell(text, True)
        first = False
        until = (yield from now()) + poll_interval
        while (left := until - (yield from now())) > 0 and (message := (yield from receive(left))) is not None:
            replica = followed[str(message.key)]
            if message.ended:
                replica.reading = False
            else:
                replica.has_lines = True
                yield Item(message.value)
        if is_deleted:
            return


def _pods_of(
    api: ApiCalls, model: str, namespace: str, selector: str, outage: Outage
) -> Call[tuple[list[Object], bool]]:
    """Return the Pods of a Model, and whether it was deleted."""
    while True:
        try:
            pods = (yield from api.list(POD, namespace, selector))["items"]
            is_deleted = not pods and not (yield from api.exists(MODEL, model, namespace))
        except Unreachable as error:
            yield from outage.pause(error, math.inf)
        else:
            outage.reset()
            return pods, is_deleted


def _key_of(pod: Object) -> str:
    return f"{name_of(pod)}/{uid_of(pod)}"


def _query_of(pod: Object, followed: dict[str, _Followed], tail: int | None) -> dict[str, str] | None:
    """Record the Pod as followed and return the query for its log; None if it is read already or has ended."""
    restarts = int(status_of(pod).get("restartCount") or 0)
    known = followed.get(_key_of(pod))
    if known is not None and known.restarts == restarts:
        if known.reading or is_deleting(pod) or "running" not in (status_of(pod).get("state") or {}):
            return None
        # The server ended the response although the container runs. A log without a line is read from the start.
        tail = 0 if known.has_lines else tail
    followed[_key_of(pod)] = _Followed(True, restarts)
    return {"follow": "true", "container": container_of(pod)} | ({} if tail is None else {"tailLines": str(tail)})


def _read(api: ApiCalls, path: str, replica: str, query: Mapping[str, str]) -> Items[ReplicaLine]:
    try:
        stream = yield from api.open_lines(path, query)
        while line := (yield from read_line(stream)):
            yield Item(ReplicaLine(replica, line))
    except NotFound:
        return  # the replica ended before its log was opened
    except KnodelError as error:
        yield Item(ReplicaLine(replica, f"the log ended: {error}\n".encode()))
