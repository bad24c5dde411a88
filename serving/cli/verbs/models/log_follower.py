"""Following the logs of a Model: those of all its replicas, also of those that start later."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from clusters.base.errors import KnodelError, NotFound
from clusters.base.objects import MODEL, POD, Object, is_deleting, name_of, uid_of
from serving.cli.client.client import Client
from serving.cli.client.replicas import container_of, not_started, status_of

LOOK_EVERY = 1.0  # s between two looks for new replicas


@dataclass(slots=True)
class _Followed:
    """A replica whose log was opened.

    `reading` is whether the log is being read, `restarts` how often the container had been restarted when that began,
    `has_lines` whether a line has come since.
    """

    reading: bool
    restarts: int
    has_lines: bool = False


class LogFollower:
    """Writes each line of every replica of a Model, prefixed by the replica's name, until the Model is deleted.

    `selector` chooses the Pods. `tail` bounds the lines of replicas that are there at the start; later ones are shown
    from their beginning. `write` receives lines, `note` what is to be said beside them.
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
        note: Callable[[str], None],
        look_every: float = LOOK_EVERY,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._model = model
        self._selector = selector
        self._tail = tail
        self._write = write
        self._note = note
        self._look_every = look_every
        self._lines: queue.SimpleQueue[tuple[str, bytes | None]] = queue.SimpleQueue()
        self._followed: dict[str, _Followed] = {}
        self._noted: set[str] = set()

    def run(self) -> None:
        """Follow until the Model is gone. Raises what the client raises, but for one log."""
        first = True
        while True:
            pods = self._client.list(POD, self._namespace, self._selector)["items"]
            for pod in pods:
                self._follow(pod, self._tail if first else None)
            if not pods and not self._is_there():
                self._drain()
                return
            if not any(one.reading for one in self._followed.values()):
                self._note_once(f"no replica of model {self._model} runs now: waiting for one, Ctrl-C ends this")
            else:
                self._noted.clear()
            first = False
            self._drain()

    def _is_there(self) -> bool:
        try:
            self._client.get(MODEL, self._model, self._namespace)
        except NotFound:
            return False
        return True

    def _follow(self, pod: Object, tail: int | None) -> None:
        """Begin to read the Pod's log, unless that is under way or the log is at its end."""
        if reason := not_started(pod):
            self._note_once(reason)
            return
        restarts = int(status_of(pod).get("restartCount") or 0)
        replica = f"{name_of(pod)}/{uid_of(pod)}"
        known = self._followed.get(replica)
        if known is not None and known.restarts == restarts:
            if known.reading or is_deleting(pod) or "running" not in (status_of(pod).get("state") or {}):
                return
            # The server ended the answer, not the container its log. A log that had no line yet is read from its start.
            tail = 0 if known.has_lines else tail
        self._followed[replica] = _Followed(True, restarts)
        query = {"follow": "true", "container": container_of(pod)}
        if tail is not None:
            query["tailLines"] = str(tail)
        threading.Thread(target=self._read, args=(replica, pod, query), daemon=True).start()

    def _read(self, replica: str, pod: Object, query: Mapping[str, str]) -> None:
        prefix = f"[{name_of(pod)}] ".encode()
        try:
            for line in self._open(pod, query):
                self._followed[replica].has_lines = True
                self._lines.put((replica, prefix + line))
        except NotFound:
            pass  # it ended before its log was opened
        except KnodelError as error:
            self._lines.put((replica, prefix + f"the log ended: {error}\n".encode()))
        self._lines.put((replica, None))

    def _open(self, pod: Object, query: Mapping[str, str]) -> Iterator[bytes]:
        return self._client.stream(self._client.log_path(self._namespace, name_of(pod)), query)

    def _drain(self) -> None:
        """Write what comes until it is time to look for replicas again."""
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

    def _note_once(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)
