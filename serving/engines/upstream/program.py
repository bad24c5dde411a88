"""The interface of a program that is an HTTP server in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from serving.engines.base.engine import Adapter
from serving.engines.base.errors import InferenceFailed
from serving.engines.upstream.client import Address


class EngineLoad(NamedTuple):
    """The load of an engine: the requests that it computes and those that wait inside it.

    `kv_share` is the part of its KV cache that is in use, from 0 to 1, None if it is unknown. `sleeping` is whether
    it has given its memory back until it is woken. `reason` tells why it takes no requests, "" if it does.
    """

    running: int = 0
    waiting: int = 0
    kv_share: float | None = None
    sleeping: bool = False
    reason: str = ""


class Command(NamedTuple):
    """How to start the engine's process: its arguments, and variables that are added to the environment."""

    argv: Sequence[str]
    environ: Mapping[str, str] = {}


class PageRefused(InferenceFailed):
    """The engine responded to a request for a page with this status, which is not 200, and this body."""

    def __init__(self, message: str, status: int, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class EngineDead(InferenceFailed):
    """The engine still answers, and cannot compute any more: its process is killed."""


class Get(Protocol):
    """A function that reads a page of the engine."""

    def __call__(self, path: str, method: str = "GET", body: bytes | None = None) -> bytes:
        """Return the body of a page; `body`, of a POST, is JSON. Raises PageRefused, EngineError."""
        ...


class EngineProgram(Protocol):
    """A program that serves one model over HTTP/1.1 on a Unix socket, with OpenAI's paths.

    It must require `Authorization: Bearer KEY`, and end when its standard input is closed.
    """

    @property
    def platform(self) -> str:
        """The name of the platform in the Open Inference Protocol (`gguf_llamacpp`)."""
        ...

    @property
    def restarts(self) -> bool:
        """Whether a process that ended is started again; else the whole replica ends."""
        ...

    @property
    def paths(self) -> frozenset[str]:
        """The paths of the engine that callers may use (`/v1/chat/completions`). No other is passed on."""
        ...

    @property
    def adapters(self) -> Sequence[str]:
        """The names of the LoRA adapters with which it starts. Callers ask for one by the model `NAME:ADAPTER`."""
        ...

    @property
    def refusals(self) -> Sequence[str]:
        """Parts of messages with which the engine answers 500 although the request is at fault."""
        ...

    def command(self, socket: Path, key: str) -> Command:
        """Return how to start the engine so that it listens on `socket` and accepts `key`."""
        ...

    def slots(self, get: Get, wanted: int) -> int:
        """Return how many requests the started engine computes at once, at most `wanted` unless that is 0."""
        ...

    def load(self, get: Get) -> EngineLoad:
        """Return what the engine is doing. Raises EngineDead if it never recovers, EngineError."""
        ...

    def change_body(self, body: dict[str, Any], adapter: str) -> dict[str, Any] | None:
        """Return the body to send to the engine for a request of `adapter` ("": none); None: send it unchanged.

        Raises InputRefused.
        """
        ...

    def wake(self, get: Get) -> None:
        """Wake the sleeping engine. Raises EngineError. Blocks."""
        ...

    def close(self) -> None:
        """Release the files of the model. The process has ended."""
        ...


@runtime_checkable
class FrontedProgram(EngineProgram, Protocol):
    """A program with a server of its own for callers' requests, beside the one that tells its state."""

    def entrance(self, state: Address) -> Address:
        """Return where callers' requests go. `state` is where the started engine tells its state."""
        ...


@runtime_checkable
class ProbedProgram(EngineProgram, Protocol):
    """A program that may be healthy by its HTTP server, and compute nothing any more."""

    @property
    def probe(self) -> str:
        """A page that the program only answers between two steps of its computation. It wakes a sleeping engine."""
        ...


@runtime_checkable
class AdaptableProgram(EngineProgram, Protocol):
    """A program that loads and unloads LoRA adapters while it serves, if it was started with room for them."""

    def load_adapter(self, get: Get, adapter: Adapter, model: str) -> None:
        """Check the files of an adapter and load them as `model`, the name in requests. Blocks.

        Raises LoadFailed if the adapter is at fault, StorageError, EngineError.
        """
        ...

    def unload_adapter(self, get: Get, model: str) -> None:
        """Unload the adapter that was loaded as `model`; no request uses it. Blocks. Raises EngineError."""
        ...


@runtime_checkable
class RestingProgram(EngineProgram, Protocol):
    """A program that is put to sleep when it is idle. Others sleep by themselves, or never."""

    @property
    def rest_after(self) -> float:
        """Seconds without a request after which the engine is put to sleep; 0: never."""
        ...

    def rest(self, get: Get) -> None:
        """Put the engine to sleep. Raises EngineError. Blocks. It has no request, and gets none before `wake`."""
        ...
