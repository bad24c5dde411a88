"""The ports of a server: HTTP for inference, HTTP for management and, optionally, gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.types import ASGIApp

from serving.modelserver.connections.listener import AsgiListener
from serving.modelserver.execution.inference import Inference
from serving.modelserver.observe.observability import Observability

if TYPE_CHECKING:
    from serving.modelserver.grpc.server import GrpcServer
    from serving.modelserver.grpc.service import ModelDirectory

log = logging.getLogger(__name__)

MAX_CALL_SECONDS: Final = 5.0  # s that a stopping server waits for management calls
QUIET: Final = 0.25  # s without a request, after which load balancers have stopped routing to this server


class Ports(msgspec.Struct, frozen=True):
    """The listeners of a server."""

    data: AsgiListener
    management: AsgiListener
    grpc: GrpcServer | None
    observability: Observability

    def set_revision(self, revision: str) -> None:
        """Label all responses with this revision from now on."""
        self.data.set_revision(revision)
        self.management.set_revision(revision)
        if self.grpc is not None:
            self.grpc.set_revision(revision)

    def serve_model(self, name: str, revision: str, app: ASGIApp, inference: Inference) -> None:
        """Route the requests of all protocols to this model from now on."""
        self.data.set_app(self.observability.instrument(app))
        if self.grpc is not None:
            self.grpc.serve_model(name, revision, inference)

    def serve_directory(self, directory: ModelDirectory) -> None:
        """Route gRPC calls to the models of `directory` from now on."""
        if self.grpc is not None:
            self.grpc.serve_directory(directory)

    async def start(self, host: str, grpc_port: int) -> None:
        """Listen on all ports. Raises CannotListen."""
        await self.data.start()
        await self.management.start()
        log.info("management at %s:%d", host, self.management.port)
        if self.grpc is not None:
            log.info("gRPC at %s:%d", host, await self.grpc.start(host, grpc_port))

    async def drain(self, limit: float) -> None:
        """Return when no more requests arrive and all are answered, or after `limit` seconds."""
        draining = [self.data.drain(QUIET, limit)]
        if self.grpc is not None:
            draining.append(self.grpc.drain(QUIET, limit))
        await asyncio.gather(*draining)

    async def close(self, grpc_within: float | None = None) -> None:
        """Stop listening, and return when requests in flight have ended; gRPC calls within `grpc_within` seconds."""
        await self.data.close()
        with contextlib.suppress(TimeoutError):  # a load call may fetch files for an hour; it ends with the loop
            async with asyncio.timeout(MAX_CALL_SECONDS):
                await self.management.close()
        if self.grpc is not None:
            await (self.grpc.close() if grpc_within is None else self.grpc.close(grpc_within))
