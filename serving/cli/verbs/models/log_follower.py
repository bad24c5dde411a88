"""Follow the logs of all replicas of a Model, including replicas that start later."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clusters.base.errors import KnodelError, NotFound
from clusters.base.objects import MODEL, POD, Object, is_deleting, name_of, uid_of
from serving.client.client import Client
from serving.client.replicas import container_of, not_started_reason, status_of

POLL_INTERVAL = 1.0  # s between two searches for new replicas


@dataclass(slots=True)
class _Followed:
    """A replica whose log was opened.

    `reading`: whether a thread reads the log. `restarts`: restarts of the container when reading began. `has_lines`:
    whether a line has arrived since.
    """

    reading: bool
    restarts: int
    has_lines: bool = False


class LogFollower:
    """Write the log lines of all replicas of a Model, prefixed by the replica's name, until the Model is deleted.

    `selector` selects the Pods. `tail` limits the lines of replicas that exist at the start; those of later replicas
    are written from the beginning. `write` receives the lines, `warn` messages about them.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        model: str,
        selector: str,
        *,
        tail: int | None,
        write: Callable[[bytes], None],
        warn: Callable[[str], None],
        poll_interval: float = POLL_INTERVAL,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._model = model
        self._selector = selector
        self._tail = tail
        self._write = write
        self._warn = warn
        self._look_every = poll_interval
        self._lines: queue.SimpleQueue[tuple[str, bytes | None]] = queue.SimpleQueue()
        self._followed: dict[str, _Followed] = {}
        self._warned: set[str] = set()

    def run(self) -> None:
        """Follow until the Model is deleted. Raises the errors of the client, except those of single logs."""
        first = True
        while True:
            pods = self._client.list(POD, self._namespace, self._selector)["items"]
            for pod in pods:
                self._follow(pod, self._tail if first else None)
            if not pods and not self._client.exists(MODEL, self._model, self._namespace):
                self._drain()
                return
            if not any(one.reading for one in self._followed.values()):
                self._warn_once(f"no replica of model {self._model} runs now: waiting for one, Ctrl-C stops")
            else:
                self._warned.clear()
            first = False
            self._drain()

    def _follow(self, pod: Object, tail: int | None) -> None:
        """Start to read the Pod's log, unless a thread reads it already or the log has ended."""
        if reason := not_started_reason(pod):
            self._warn_once(reason)
            return
        restarts = int(status_of(pod).get("restartCount") or 0)
        replica = f"{name_of(pod)}/{uid_of(pod)}"
        known = self._followed.get(replica)
        if known is not None and known.restarts == restarts:
            if known.reading or is_deleting(pod) or "running" not in (status_of(pod).get("state") or {}):
                return
            # The server ended the response although the container runs. A log without a line is read from the start.
            tail = 0 if known.has_lines else tail
        self._followed[replica] = _Followed(True, restarts)
        query = {"follow": "true", "container": container_of(pod)}
        if tail is not None:
            query["tailLines"] = str(tail)
        threading.Thread(target=self._read, args=(replica, pod, query), daemon=True).start()

    def _read(self, replica: str, pod: Object, query: Mapping[str, str]) -> None:
        prefix = f"[{name_of(pod)}] ".encode()
        try:
            for line in self._client.stream(self._client.log_path(self._namespace, name_of(pod)), query):
                self._followed[replica].has_lines = True
                self._lines.put((replica, prefix + line))
        except NotFound:
            pass  # the replica ended before its log was opened
        except KnodelError as error:
            self._lines.put((replica, prefix + f"the log ended: {error}\n".encode()))
        self._lines.put((replica, None))

    def _drain(self) -> None:
        """Write arriving lines until the next search for replicas."""
        until = time.monotonic() + self._look_every
        while (left := until - time.monotonic()) > 0:
            try:
                replica, line = self._lines.get(timeout=left)
            except queue.Empty:
                return
            if line is not None:
                self._write(line)
            else:
                self._followed[replica].reading = False

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)
