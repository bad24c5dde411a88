"""What all operations of a client share: its platform, namespace, and caches."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from clusters.base.names import dns_label_fault
from clusters.base.objects import MODEL, Object
from serving.client.api import MIN_TIMEOUT, TIMEOUT, ApiCalls
from serving.client.effects import Call, work
from serving.client.errors import UsageError
from serving.client.http import ServerAddress
from serving.client.inference.addresses import address_of
from serving.client.platform_ref import PlatformRef

if TYPE_CHECKING:
    from knodel.inference.entrance import Entrance
    from knodel.inference.metadata import ModelMetadata
    from knodel.results.model import Model

LONGEST = 1e9  # s; clocks and sockets take no more
_OPTION = re.compile(r"(?<!\S)--([a-z][a-z-]+)(?: ([A-Z]+)\b)?")
READ_RETRIES = 2
"""How often a read that got no response is sent again."""


@dataclass(frozen=True)
class ModelsUrl:
    """The address of models at a URL, for inference only: the server, and headers that authenticate."""

    endpoint: ServerAddress
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ClientCore:
    """The platform (`ref`) or the URL of a client, its namespace, and what it remembers of models.

    `retries` limits how often one inference request is sent again when it certainly was not executed. `options` are
    those of the command that select the same platform and namespace.
    """

    ref: PlatformRef | None
    namespace: str
    url: ModelsUrl | None = None
    retries: int = 3
    options: Mapping[str, str] = field(default_factory=dict)
    entrances: dict[tuple[str, str], Entrance] = field(default_factory=dict)
    metadata: dict[tuple[str, str], ModelMetadata] = field(default_factory=dict)
    recent: dict[str, deque[float]] = field(default_factory=dict)

    def advise(self, message: str) -> str:
        """Return a message whose advised commands act on the platform and the namespace of the client.

        Options outside of commands become arguments: `--kube-context NAME` is kube_context=NAME.
        """
        from serving.cli.base.advice import complete_advice

        parts = complete_advice(message, self.options).split("`")
        parts[::2] = [_OPTION.sub(_argument, part) for part in parts[::2]]
        return "`".join(parts)

    def platform(self) -> PlatformRef:
        """Return the platform. Raises UsageError for a client of a URL, which sends inference requests only."""
        if self.ref is None:
            raise UsageError(
                "a client with a URL only sends inference requests: use knodel.Client() for the platform of this "
                "machine, or knodel.Client(kube_context=…) for a cluster"
            )
        return self.ref

    def calls(self, timeout: float = TIMEOUT) -> Call[ApiCalls]:
        """Return the operations of the API server, for an operation that may take `timeout` seconds in all.

        Raises UsageError as `platform`, ClientError when no platform runs or the context has no usable credentials.
        """
        server = yield from work(self.platform().server)
        return ApiCalls(server, min(TIMEOUT, max(MIN_TIMEOUT, timeout)), READ_RETRIES)

    def models(self, objects: Iterable[Object]) -> Call[tuple[Model, ...]]:
        """Return Model objects as results, with the addresses that clients of the platform reach."""
        from knodel.results.reading import model_from

        ref, gateway = self.platform(), None
        if ref.kube is None:
            gateway = (yield from work(ref.platform)).gateway
        return tuple(model_from(obj, address_of(gateway, obj)) for obj in objects)

    def model(self, obj: Object) -> Call[Model]:
        """Return a Model object as a result."""
        (found,) = yield from self.models([obj])
        return found

    def get(self, name: str) -> Call[Object]:
        """Return a Model object. Raises NotFound."""
        return (yield from (yield from self.calls()).get(MODEL, check_name(name), self.namespace))


def _argument(option: re.Match[str]) -> str:
    """Return an option of the command as an argument in Python."""
    return option[1].replace("-", "_") + (f"={option[2]}" if option[2] else "")


def check_name(name: str, what: str = "name") -> str:
    """Return a name. Raises UsageError unless it is a DNS label."""
    if not isinstance(name, str):
        raise UsageError(f"{what} is a {type(name).__name__}: give a text")
    if fault := dns_label_fault(name):
        raise UsageError(f"{what}: {fault}")
    return name


def parse_url(url: str, api_key: str) -> ModelsUrl:
    """Return the address of models at a URL. Raises UsageError."""
    import ssl

    try:
        parts = urlsplit(url)
        port = {"http": 80, "https": 443}[parts.scheme] if parts.port is None else parts.port
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UsageError(
            f"{url} is not an http:// or https:// URL: give one such as https://models.example.com"
        ) from None
    if not parts.hostname or parts.username is not None:
        raise UsageError("the URL has no host, or has a user: give one such as https://models.example.com, and api_key")
    if parts.query or parts.fragment:
        raise UsageError("the URL has a query or a fragment: give one such as https://models.example.com")
    if not (isinstance(api_key, str) and api_key.isascii() and api_key.isprintable()):
        raise UsageError("api_key is not a text of printable ASCII: check the key")
    endpoint = ServerAddress(
        parts.hostname,
        port,
        "the server",
        "check the URL of the client",
        tls=ssl.create_default_context() if parts.scheme == "https" else None,
        tls_remedy="install its certificate authority on this machine",
        prefix=parts.path.rstrip("/"),
    )
    return ModelsUrl(endpoint, {"Authorization": f"Bearer {api_key}"} if api_key else {})


def check_timeout(timeout: float) -> float:
    """Return a time limit in seconds. Raises UsageError unless it is a number above 0."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= LONGEST:
        raise UsageError(f"timeout is {timeout!r}: give a number of seconds, such as 300")
    return float(timeout)
