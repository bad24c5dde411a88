"""The gRPC port: one `grpc.aio` server in the event loop of the model server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from clusters.net.authority import authority
from serving.modelserver.base.errors import CannotListen
from serving.modelserver.base.limits import BodyBudget, ServerLimits
from serving.modelserver.connections.sockets import FREE_PORT
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import ModelLifecycle
from serving.modelserver.execution.target import InferenceTarget
from serving.modelserver.grpc.flow_control import MessageReceiver, ResponseBackpressure
from serving.modelserver.grpc.library import grpc
from serving.modelserver.grpc.service import CallMetrics, InferenceService, ModelDirectory

log = logging.getLogger(__name__)

MAX_CALLS: Final = 4096  # concurrent calls of all methods and clients; over HTTP as many wait in the kernel
MAX_STREAMS: Final = 512
"""Concurrent calls on one connection, including calls that the client has cancelled and the server has not ended yet. A
client with more calls waits, or opens another connection."""
MAX_WAITING: Final = 8192
"""Calls, of at most 12 kB each, that wait to be started. Beyond its own limits, 1000 and 3000, gRPC cancels calls of
any client: eight connections that start and reset calls all the time (CVE-2023-44487) left no room for others."""
MAX_ROUNDS: Final = 4  # of waiting for silence when the server stops; then it sends GOAWAY to clients that continue
MAX_CLOSE_SECONDS: Final = 600.0  # s; no request takes longer (Knative's max-revision-timeout-seconds)
_MS: Final = 1000


class GrpcServer:
    """Serves from `start` to `close`: the model of `serve_model`, or the models of `serve_directory`.

    With `pending`, inferences wait there until the model is known. A server of many models has no `pending`.
    """

    def __init__(
        self, lifecycle: ModelLifecycle, pending: PendingRequests | None, budget: BodyBudget, limits: ServerLimits,
        metrics: CallMetrics | None = None, monotonic: Callable[[], float] = time.monotonic, *,
        interceptors: Sequence[Any] = (), token: bytes = b"",
    ) -> None:  # fmt: skip
        receiver = MessageReceiver(budget, limits, asyncio.get_running_loop())
        backpressure = ResponseBackpressure(limits.unread_responses)
        self._service = InferenceService(lifecycle, pending, receiver, backpressure, metrics, monotonic, token)
        with _batch_threads():
            self._server = grpc.aio.server(
                interceptors=interceptors, options=_options(limits), maximum_concurrent_rpcs=MAX_CALLS
            )
        self._server.add_generic_rpc_handlers(self._service.handlers())

    def set_revision(self, revision: str) -> None:
        """Label all responses with this revision from now on."""
        self._service.set_revision(revision)

    def serve_model(self, name: str, revision: str, inference: Inference) -> None:
        """Route calls to this model from now on."""
        self._service.serve_model(InferenceTarget(name, revision, inference))

    def serve_directory(self, directory: ModelDirectory) -> None:
        """Route calls to the models of `directory` from now on."""
        self._service.serve_directory(directory)

    async def start(self, host: str, port: int) -> int:
        """Listen on this port (0: any free one) and return it. Raises CannotListen."""
        address = authority(host, port)
        with _batch_threads():
            try:
                bound = int(self._server.add_insecure_port(address))
            except RuntimeError as error:
                raise CannotListen(f"cannot listen on {address} for gRPC", FREE_PORT, "GRPC_PORT") from error
            await self._server.start()
        return bound

    async def drain(self, quiet: float, limit: float) -> None:
        """Serve until no inference has arrived for `quiet` seconds, then ask clients to close their connections.

        Returns when all calls have ended; calls that take longer than `limit` seconds are cancelled.
        """
        seen = -1
        for _ in range(MAX_ROUNDS):
            if seen == self._service.calls:
                break
            seen = self._service.calls
            await asyncio.sleep(quiet)
        await self._server.stop(limit)

    async def close(self, within: float = MAX_CLOSE_SECONDS) -> None:
        """Stop listening, and return when calls in flight have ended, or after `within` seconds."""
        await self._server.stop(within)


_UNCOMPRESSED: Final = 1
_COMPRESSED: Final = 1 << int(grpc.Compression.Gzip) | 1 << int(grpc.Compression.Deflate)


def _options(limits: ServerLimits) -> list[tuple[str, Any]]:
    """Return the options of gRPC's core; its `channel_arg_names.h` documents them."""
    return [
        ("grpc.max_receive_message_length", limits.body),
        ("grpc.max_send_message_length", -1),  # the model determines the size of a response, as over HTTP
        ("grpc.max_metadata_size", limits.head),
        ("grpc.absolute_max_metadata_size", limits.head),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.server.max_pending_requests", MAX_WAITING),
        ("grpc.server.max_pending_requests_hard_limit", MAX_WAITING),
        ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED | _COMPRESSED),
        ("grpc.per_message_decompression", 0),  # `MessageReceiver` does it: gRPC does not bound the decompressed size
        ("grpc.keepalive_time_ms", int(limits.ping * _MS)),
        ("grpc.keepalive_timeout_ms", int(limits.pong * _MS)),
        ("grpc.http2.max_pings_without_data", 0),  # unlimited: a client that does not read receives no data
        ("grpc.so_reuseport", 0),  # otherwise a second server could take a share of the connections
    ]


@contextlib.contextmanager
def _batch_threads() -> Iterator[None]:
    """Schedule threads that start meanwhile, and their children, as batch threads (sched(7), SCHED_BATCH).

    gRPC's core wakes a thread for each step of a call. Each of them would preempt the event loop during an inference:
    eight context switches for one call on a single core. Batch threads wait until the loop is idle, and need no
    privilege. Does nothing where the system does not support them.
    """
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError):  # not Linux, or a sandbox forbids it
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)
