"""An engine that is an HTTP server in a process of its own: llama.cpp's, vLLM's, one of the user's.

The model server passes requests of OpenAI's paths on to it byte for byte (`serving.modelserver.openai`). The tensors
of the Open Inference Protocol become completions here. A thread watches the process and starts it again when it ends.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import Adapter, Cancellation, EngineOptions
from serving.engines.base.errors import Cancelled, EngineError, InferenceFailed, InputRefused, LoadFailed
from serving.engines.upstream import client
from serving.engines.upstream.adapters import AdapterTable, ServedAdapter
from serving.engines.upstream.client import Address, NoSuchPage
from serving.engines.upstream.gate import Gate
from serving.engines.upstream.process import EngineProcess, SocketFolder
from serving.engines.upstream.program import (
    AdaptableProgram,
    EngineDead,
    EngineLoad,
    EngineProgram,
    FrontedProgram,
    PageRefused,
    ProbedProgram,
    RestingProgram,
)
from serving.engines.upstream.remote import EngineState, RemoteEngine
from serving.engines.upstream.text import (
    BAD_REQUEST,
    SERVER_ERROR,
    completion_request,
    read_completion,
    text_signature,
    text_tensor,
)
from serving.engines.upstream.usage import TokenUsage

log = logging.getLogger(__name__)

EXAMPLE: Final = msgspec.json.encode(
    {
        "inputs": [
            {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["The capital of France is"]},
            {"name": "max_tokens", "datatype": "INT64", "shape": [1], "data": [16]},
        ]
    }
)
COMPLETIONS: Final = "/v1/completions"
HEALTH: Final = "/health"
READ_PERIOD: Final = 0.5  # s between two readings of what the engine is doing
PAGE_TIMEOUT: Final = 5.0  # s for a page of the engine
PROBE_TIMEOUT: Final = 5.0  # s for a page that waits for the step that is computed
REST_TIMEOUT: Final = 300.0  # s to fall asleep or to wake; the weights of a large model are copied meanwhile
SILENT: Final = 10.0  # s without an answer to readings after which the engine is killed
FIRST_DELAY, LONGEST_DELAY = 1.0, 30.0  # s before a restart; each one after another waits twice as long
STABLE: Final = 60.0  # s; an engine that ran so long is started again after the first delay
_POLL: Final = 0.02  # s between two looks at an engine that starts

_ENCODE: Final = msgspec.json.Encoder().encode


class _Running(NamedTuple):
    address: Address
    load: EngineLoad
    entrance: Address


class UpstreamEngine(RemoteEngine):
    """The engine of `program`, started and healthy when the constructor returns. Raises LoadFailed.

    `example` is a request of the Open Inference Protocol, as a model's files may have one.
    """

    example: Final = EXAMPLE

    def __init__(self, program: EngineProgram, options: EngineOptions) -> None:
        super().__init__(text_signature(program.platform))
        self.program = program
        self.paths = program.paths
        self.adapters = AdapterTable([ServedAdapter(one, f"{options.name}:{one}") for one in program.adapters])
        self._name = options.name
        self._folder = SocketFolder()
        self._patience = max(SILENT, options.timeout)  # one step of a large model on few cores may take minutes
        self._silent_since: float | None = None  # since when no probe was answered
        self._closing = threading.Event()
        self._gate = Gate()
        self._state = EngineState(None, "the engine is starting")
        self._process: EngineProcess | None = None
        began = time.monotonic()
        try:
            address = self._start()
            self.slots = program.slots(self._getter(address), options.slots)
        except BaseException:
            self.close()
            raise
        log.info("the engine takes %d requests at once, started in %.1f s", self.slots, time.monotonic() - began)
        self._state = self._serving(address)
        self._watcher = threading.Thread(target=self._watch, name="engine-watch", daemon=True)
        self._watcher.start()

    @property
    def state(self) -> EngineState:
        """The engine's state by the last reading, at most `READ_PERIOD` old while the engine answers."""
        return self._state

    @property
    def pid(self) -> int | None:
        """The id of the engine's process; None while it is not running."""
        process = self._process
        return None if process is None or process.ended else process.pid

    def enter(self) -> Address | None:
        """Count a request, which must `leave`, and return where to send it; does not block.

        None: the engine sleeps or is about to, so call `wake` and try again. Raises InferenceFailed if it has ended.
        """
        state = self._running()
        if state.load.sleeping or not self._gate.enter():
            return None
        return state.entrance

    def leave(self) -> None:
        """End a request."""
        self._gate.leave()

    def wake(self) -> None:
        """Wake the engine if it sleeps; blocks. Raises EngineError."""
        state = self._running()
        with self._gate.waking(state.load.sleeping) as needed:
            if needed:
                self.program.wake(self._getter(state.address, REST_TIMEOUT))
                self._state = self._state._replace(load=self._state.load._replace(sleeping=False))

    def load_adapter(self, adapter: Adapter, model: str) -> None:
        """Load an adapter as `model`; blocks. `adapters` decides when requests get it.

        Raises LoadFailed if the adapter is at fault, StorageError, EngineError.
        """
        program = self._adaptable()
        with self._entered() as address:
            program.load_adapter(self._getter(address, REST_TIMEOUT), adapter, model)

    def unload_adapter(self, model: str) -> None:
        """Unload the adapter that was loaded as `model`, and that no request uses; blocks. Raises EngineError."""
        program = self._adaptable()
        with self._entered() as address:
            program.unload_adapter(self._getter(address, REST_TIMEOUT), model)

    def page(self, path: str) -> bytes:
        """Return a page of the engine, such as its metrics; blocks. Raises NoSuchPage, InferenceFailed."""
        return self._getter(self._running().address)(path)

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Return the completion of `text_input`. Raises InputRefused, InferenceFailed, Cancelled."""
        body = self._completion(inputs, stream=False)
        with self._entered() as address:
            reply = client.request(address, "POST", COMPLETIONS, body, cancellation=cancellation)
        if reply.status != client.OK:
            reason = f"the engine responded with {reply.status}: {reply.body[:1000].decode('utf-8', 'replace')}"
            raise InputRefused(reason) if BAD_REQUEST <= reply.status < SERVER_ERROR else InferenceFailed(reason)
        completion = read_completion(reply.body)
        if completion.usage is not None:
            self.tokens.add(completion.usage)
        return [text_tensor(completion.text) for _ in outputs]

    def stream(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Iterator[Sequence[Tensor]]:
        """Yield the pieces of the completion. Raises InputRefused, InferenceFailed, Cancelled.

        A piece counts as a token of a completion that ends before the engine has reported its tokens.
        """
        body = self._completion(inputs, stream=True)
        with self._entered() as address:
            pieces, told = 0, None
            try:
                for event in client.stream(address, COMPLETIONS, body, cancellation):
                    if event == b"[DONE]":
                        return
                    text, usage = read_completion(event)
                    told = usage or told
                    if text:
                        pieces += 1
                        yield [text_tensor(text) for _ in outputs]
            finally:
                self.tokens.add(told or TokenUsage(completion=pieces))
        if cancellation is not None and cancellation.cancelled:
            raise Cancelled("the inference was cancelled")
        raise InferenceFailed("the engine broke off the answer")

    def close(self) -> None:
        """Kill the process and its children."""
        self._closing.set()
        if self._process is not None:
            self._process.close()
        self._folder.close()
        self.program.close()

    def _running(self) -> _Running:
        """Return the state. Raises InferenceFailed if the engine has ended."""
        state = self._state
        if state.address is None:
            raise InferenceFailed(state.reason)
        return _Running(state.address, state.load, state.entrance or state.address)

    def _serving(self, address: Address) -> EngineState:
        """Return the state of the engine that has just become healthy."""
        entrance = self.program.entrance(address) if isinstance(self.program, FrontedProgram) else None
        return EngineState(address, "", entrance=entrance)

    def _adaptable(self) -> AdaptableProgram:
        if not isinstance(self.program, AdaptableProgram):
            raise LoadFailed(f"{self.program.platform} loads adapters only when it starts")
        return self.program

    @contextlib.contextmanager
    def _entered(self) -> Iterator[Address]:
        """Count a request while the block runs, once the engine is awake. Raises EngineError."""
        while (address := self.enter()) is None:
            self.wake()
        try:
            yield address
        finally:
            self.leave()

    def _completion(self, inputs: Mapping[str, Tensor], *, stream: bool) -> bytes:
        body = completion_request(self._name, inputs, stream=stream)
        return _ENCODE(self.program.change_body(body, "") or body)

    def _start(self) -> Address:
        """Start the process and return its address once it is healthy. Raises LoadFailed."""
        self._folder.renew()
        address = Address(self._folder.socket, secrets.token_urlsafe(32))
        process = self._process = EngineProcess(self.program.command(address.socket, address.key))
        if self._closing.is_set():  # `close` came while the process was started, and did not see it
            process.close()
        while not process.ended:
            with contextlib.suppress(EngineError):
                if client.request(address, "GET", HEALTH, timeout=PAGE_TIMEOUT).status == client.OK:
                    return address
            self._closing.wait(_POLL)
        reason = process.exit_reason()
        process.close()
        raise LoadFailed(f"the engine ended before it was ready, {reason}")

    def _watch(self) -> None:
        """Read what the engine is doing, and start it again when it has ended. Runs in a thread."""
        answered = started = time.monotonic()
        delay = FIRST_DELAY
        while not self._closing.wait(READ_PERIOD):
            process, address = self._process, self._state.address
            if process is None or address is None:
                return
            now = time.monotonic()
            if not process.ended:
                try:
                    load = self.program.load(self._getter(address))
                    self._state = self._state._replace(reason=load.reason, load=load)
                    answered = time.monotonic()
                    self._probe(address)
                    self._rest(address)
                    continue
                except EngineDead as error:
                    log.warning("the engine is dead and is killed: %s", error)
                except EngineError as error:
                    if now - answered < SILENT:
                        continue
                    log.warning("the engine is silent for %g s and is killed: %s", now - answered, error)
            delay = FIRST_DELAY if now - started > STABLE else min(2 * delay, LONGEST_DELAY)
            self._state = EngineState(None, "the engine has ended and is started again: try again")
            process.close()
            log.warning("the engine ended %s", process.exit_reason())
            if not self._restart(delay):
                return
            answered = started = time.monotonic()
            self._silent_since = None

    def _probe(self, address: Address) -> None:
        """Check that the engine still computes while it has requests, also those that were given up since.

        Raises EngineDead if it computes nothing for as long as a request may take.
        """
        program = self.program
        if not isinstance(program, ProbedProgram) or not (self._gate.busy or self._silent_since is not None):
            return
        began = time.monotonic()
        try:
            self._getter(address, PROBE_TIMEOUT)(program.probe)
        except (NoSuchPage, PageRefused):
            self._silent_since = None  # it has answered
        except EngineError as error:
            since = self._silent_since = self._silent_since or began
            if time.monotonic() - since >= self._patience:
                raise EngineDead(f"it has computed nothing for {time.monotonic() - since:.0f} s") from error
        else:
            self._silent_since = None

    def _rest(self, address: Address) -> None:
        """Put the engine to sleep if it is idle for long enough. No request enters meanwhile."""
        program = self.program
        if not isinstance(program, RestingProgram) or not 0.0 < program.rest_after <= self._gate.idle():
            return
        with self._gate.sleeping() as free:
            if free:
                log.info("the engine falls asleep: it was idle for %g s", program.rest_after)
                program.rest(self._getter(address, REST_TIMEOUT))

    def _restart(self, delay: float) -> bool:
        """Start the process again until it is healthy; return whether it is, which it is not after `close`."""
        if not self.program.restarts:
            self._state = EngineState(None, "the engine has ended: this replica needs a restart", lost=True)
            return False
        while not self._closing.wait(delay):
            try:
                address = self._start()
                self._gate.restarted()
                self._state = self._serving(address)
            except LoadFailed as error:
                log.warning("%s", error)
                delay = min(2 * delay, LONGEST_DELAY)
            else:
                log.info("the engine runs again")
                return True
        return False

    def _getter(self, address: Address, timeout: float | None = PAGE_TIMEOUT) -> _Getter:
        return _Getter(address, timeout)


class _Getter(NamedTuple):
    """Reads pages of an engine (`program.Get`)."""

    address: Address
    timeout: float | None

    def __call__(self, path: str, method: str = "GET", body: bytes | None = None) -> bytes:
        """Return the body of a page. Raises NoSuchPage, PageRefused, InferenceFailed."""
        reply = client.request(self.address, method, path, body or b"", timeout=self.timeout)
        if reply.status in client.ABSENT and body is None:
            raise NoSuchPage(f"the engine does not have the page {path}: it responded with {reply.status}")
        if reply.status != client.OK:
            raise PageRefused(f"{method} {path} of the engine responded with {reply.status}", reply.status, reply.body)
        return reply.body
