"""The gRPC port: one `grpc.aio` server in the event loop of the model server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from clusters.net.authority import authority
from serving.modelserver.base.errors import CannotListen
from serving.modelserver.base.limits import BodyBudget, ServerLimits
from serving.modelserver.connections.sockets import FREE_PORT
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import Lifecycle
from serving.modelserver.execution.target import Target
from serving.modelserver.grpc.background import batch_threads
from serving.modelserver.grpc.library import grpc
from serving.modelserver.grpc.reading import Messages
from serving.modelserver.grpc.service import Directory, Observer, Service
from serving.modelserver.grpc.untaken import Untaken

log = logging.getLogger(__name__)

MOST_CALLS: Final = 4096  # at once, of all callers, whatever they ask for; as many wait in the kernel for HTTP
MOST_STREAMS: Final = 512
"""Calls at once on one connection, those with them that their caller has taken back and that are not ended here yet:
callers with more wait, or connect once more."""
MOST_WAITING: Final = 8192
"""Calls, at most 12 kB each, that wait to be begun. Beyond its own bounds, 1000 and 3000, gRPC cancels anybody's: eight
connections that begin and reset calls all the time (CVE-2023-44487) left others no place."""
MOST_ROUNDS: Final = 4  # of waiting for silence at the end: a caller that never stops is told to go by the connection
LONGEST_END: Final = 600.0  # s; no request takes longer (Knative's max-revision-timeout-seconds)
_MS: Final = 1000


class GrpcServer:
    """Serves from `start` to `close`, the model that `answer_by` tells; before that, inferences wait in `hold`.

    Or, without a `hold`, the models that `route_by` tells.
    """

    def __init__(
        self, lifecycle: Lifecycle, hold: PendingRequests | None, budget: BodyBudget, limits: ServerLimits,
        metrics: Observer | None = None, monotonic: Callable[[], float] = time.monotonic, *,
        interceptors: Sequence[Any] = (), token: bytes = b"",
    ) -> None:  # fmt: skip
        receiver = Messages(budget, limits, asyncio.get_running_loop())
        self._service = Service(lifecycle, hold, receiver, Untaken(limits.unread_responses), metrics, monotonic, token)
        with batch_threads():
            self._server = grpc.aio.server(
                interceptors=interceptors, options=_options(limits), maximum_concurrent_rpcs=MOST_CALLS
            )
        self._server.add_generic_rpc_handlers(self._service.handlers())

    def label(self, revision: str) -> None:
        """The revision of all answers from now on."""
        self._service.label(revision)

    def answer_by(self, name: str, revision: str, inference: Inference) -> None:
        """Requests are for this model from now on."""
        self._service.answer_by(Target(name, revision, inference))

    def route_by(self, directory: Directory) -> None:
        """Calls are for the models of `directory` from now on."""
        self._service.route_by(directory)

    async def start(self, host: str, port: int) -> int:
        """Serve on this port (0: any free one) and return it. Raises CannotListen."""
        address = authority(host, port)
        with batch_threads():
            try:
                bound = int(self._server.add_insecure_port(address))
            except RuntimeError as error:
                raise CannotListen(f"cannot listen on {address} for gRPC", FREE_PORT, "GRPC_PORT") from error
            await self._server.start()
        return bound

    async def drain(self, quiet: float, limit: float) -> None:
        """Go on serving until `quiet` seconds brought no inference, then ask connections to end.

        Returns when all calls have ended; those that take longer than `limit` seconds are cancelled.
        """
        seen = -1
        for _ in range(MOST_ROUNDS):
            if seen == self._service.calls:
                break
            seen = self._service.calls
            await asyncio.sleep(quiet)
        await self._server.stop(limit)

    async def close(self, within: float = LONGEST_END) -> None:
        """Accept nothing more, and return when what is in flight has ended, or after `within` seconds."""
        await self._server.stop(within)


_UNCOMPRESSED: Final = 1
_COMPRESSED: Final = 1 << int(grpc.Compression.Gzip) | 1 << int(grpc.Compression.Deflate)


def _options(limits: ServerLimits) -> list[tuple[str, Any]]:
    """Of gRPC's core; names and meanings in its `channel_arg_names.h`."""
    return [
        ("grpc.max_receive_message_length", limits.body),
        ("grpc.max_send_message_length", -1),  # the model decides how much it says, as over HTTP
        ("grpc.max_metadata_size", limits.head),
        ("grpc.absolute_max_metadata_size", limits.head),
        ("grpc.max_concurrent_streams", MOST_STREAMS),
        ("grpc.server.max_pending_requests", MOST_WAITING),
        ("grpc.server.max_pending_requests_hard_limit", MOST_WAITING),
        ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED | _COMPRESSED),
        ("grpc.per_message_decompression", 0),  # `Messages` inflates: gRPC bounds what comes, not what it inflates to
        ("grpc.keepalive_time_ms", int(limits.ping * _MS)),
        ("grpc.keepalive_timeout_ms", int(limits.pong * _MS)),
        ("grpc.http2.max_pings_without_data", 0),  # no bound: a caller that does not read is sent no data
        ("grpc.so_reuseport", 0),  # else a second server would get a share of our callers
    ]
