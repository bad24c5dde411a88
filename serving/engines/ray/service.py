"""A Ray Serve elsewhere, such as a RayService of KubeRay, in place of a model's files.

None of its processes run here. A thread reads the health and the routes from its proxies. Requests go to the address
that this thread has resolved and checked last. While the service does not answer, the replica is not ready.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from clusters.base.redact import one_line
from clusters.net.ssrf import AddressRefused, check_service
from serving.engines.base.engine import Cancellation, EngineOptions, Signature
from serving.engines.base.errors import EngineError, InferenceFailed, InputRefused, LoadFailed
from serving.engines.upstream import client
from serving.engines.upstream.client import Address, NoSuchPage
from serving.engines.upstream.remote import EngineState, RemoteEngine

if TYPE_CHECKING:
    from serving.engines.base.datatypes import Tensor
    from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

HEALTH: Final = "/-/healthz"
ROUTES: Final = "/-/routes"
DEFAULT_SLOTS: Final = 100  # requests at once of a replica whose Model sets no containerConcurrency
READ_PERIOD: Final = 1.0  # s between two readings of the service's state
PAGE_TIMEOUT: Final = 3.0  # s for one page of the service
SILENT: Final = 5.0  # s without an answer after which the replica is not ready: one late page is no failure
START_TIMEOUT: Final = 30.0  # s until a service that does not answer fails the start, with the reason
_MAX_ROUTES: Final = 10  # that a message names
_ROUTES: Final = msgspec.json.Decoder(dict[str, str])

Resolve = Callable[[str], Sequence[str]]


class NoAnswer(EngineError):
    """Raised when the service does not answer as Ray Serve does."""


class Service(NamedTuple):
    """A URL in parts. `prefix` has no slash at its end; for the whole service it is empty."""

    host: str
    port: int
    tls: bool
    prefix: str

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        return self.host if self.port == (443 if self.tls else 80) else f"{self.host}:{self.port}"

    @classmethod
    def of(cls, url: str) -> Service:
        """Return the parts of the URL of a Model's `spec.ray.service`."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        return cls(parts.hostname or "", parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"))


def load(artifact: Artifact, options: EngineOptions) -> ServiceEngine:
    """Connect to the service. Raises LoadFailed."""
    return ServiceEngine(Service.of(options.ray.service), options)


def resolve_by_system(host: str) -> list[str]:
    """Return the addresses of a host. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def route_fault(routes: Mapping[str, str], prefix: str) -> str:
    """Return why a Ray Serve with these routes (prefix: application) serves nothing at `prefix`; empty if it does."""
    if any(f"{prefix}/".startswith(route.rstrip("/") + "/") for route in routes):
        return ""
    if not routes:
        return "it has no application yet"
    named = ", ".join(sorted(routes)[:_MAX_ROUTES])
    return f"it has no application at {prefix or '/'}, only at {named}"


class ServiceEngine(RemoteEngine):
    """The applications of a Ray Serve elsewhere, which take all requests themselves. Raises LoadFailed.

    `resolve` replaces the system's resolver.
    """

    serves_own_paths = True
    unreachable = "the service does not answer: try again"

    def __init__(self, service: Service, options: EngineOptions, resolve: Resolve = resolve_by_system) -> None:
        super().__init__(Signature("ray_serve", (), ()))
        self.slots = options.slots or DEFAULT_SLOTS
        self._service = service
        self._allow_hosts = options.allow_hosts
        self._resolve = resolve
        self._closing = threading.Event()
        self._answered = time.monotonic()
        self._state = self._wait_for_start()
        self._watcher = threading.Thread(target=self._watch, name="service-watch", daemon=True)
        self._watcher.start()

    @property
    def state(self) -> EngineState:
        """The state by the last reading, at most `READ_PERIOD` old while the service answers."""
        return self._state

    def page(self, path: str) -> bytes:
        """Raise NoSuchPage: the pages of the service are its owner's."""
        raise NoSuchPage(f"a RayService does not have the page {path} here")

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Any]:
        """Raise InputRefused: the signature of an application has no tensors."""
        raise InputRefused("a Ray Serve application takes requests over HTTP only, at its own paths")

    def close(self) -> None:
        """Stop reading the state."""
        self._closing.set()

    def _wait_for_start(self) -> EngineState:
        """Return the state once the service serves. Raises LoadFailed."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                state = self._look()
            except AddressRefused as error:
                raise LoadFailed(f"the service cannot be used: {error}") from error
            except NoAnswer as error:
                state = EngineState(None, str(error))
            if not state.reason:
                return state
            if time.monotonic() >= deadline or self._closing.wait(READ_PERIOD):
                raise LoadFailed(state.reason)

    def _watch(self) -> None:
        """Read the state of the service. Runs in a thread."""
        while not self._closing.wait(READ_PERIOD):
            try:
                state = self._look()
            except AddressRefused as error:
                state = EngineState(None, str(error))
            except NoAnswer as error:
                if time.monotonic() - self._answered < SILENT:
                    continue
                state = EngineState(None, str(error))
            if state.reason != self._state.reason:
                log.warning("%s", state.reason or "the service serves again")
            self._state = state

    def _look(self) -> EngineState:
        """Read the state, and where to send requests. Raises NoAnswer, AddressRefused."""
        service = self._service
        where = f"the service at {service.authority} does not serve"
        try:
            addresses = self._resolve(service.host)
            check_service(service.host, addresses, self._allow_hosts)
            address = Address(
                Path(), "", service.port, host=addresses[0], authority=service.authority,
                server_name=service.host if service.tls else "", prefix=service.prefix,
            )  # fmt: skip
            health = client.request(address, "GET", HEALTH, timeout=PAGE_TIMEOUT).status
            status, body = client.request(address, "GET", ROUTES, timeout=PAGE_TIMEOUT)
            routes = _ROUTES.decode(body) if status == client.OK else {}
        except (OSError, InferenceFailed, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            reason = error.__cause__ or error  # our client's own words are about engines in processes here
            raise NoAnswer(f"{where}: {one_line(str(reason) or type(reason).__name__, 200)}") from error
        self._answered = time.monotonic()
        bad = next(((path, code) for path, code in ((HEALTH, health), (ROUTES, status)) if code != client.OK), None)
        fault = f"its page {bad[0]} has the status {bad[1]}" if bad else route_fault(routes, service.prefix)
        return EngineState(None, f"{where}: {fault}") if fault else EngineState(address, "")
