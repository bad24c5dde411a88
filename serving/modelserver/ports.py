"""The ports of a server: HTTP for callers, HTTP for the platform and, if wanted, gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.types import ASGIApp

from serving.modelserver.connections.listener import HttpListener
from serving.modelserver.execution.inference import Inference
from serving.modelserver.observe.observability import Observability

if TYPE_CHECKING:
    from serving.modelserver.grpc.server import GrpcServer
    from serving.modelserver.grpc.service import Directory

log = logging.getLogger(__name__)

LONGEST_CALL: Final = 5.0  # s that the end of a server waits for calls of the platform
QUIET: Final = 0.25  # s without a request: those who send to us know by then that they should not


class Ports(msgspec.Struct, frozen=True):
    """What listens; whose `start` raises CannotListen."""

    data: HttpListener
    management: HttpListener
    grpc: GrpcServer | None
    observability: Observability

    def label(self, revision: str) -> None:
        """All answers are of this revision from now on."""
        self.data.set_revision(revision)
        self.management.set_revision(revision)
        if self.grpc is not None:
            self.grpc.label(revision)

    def answer_by(self, name: str, revision: str, app: ASGIApp, inference: Inference) -> None:
        """Requests of all protocols are for this model from now on."""
        self.data.set_app(self.observability.watch(app))
        if self.grpc is not None:
            self.grpc.answer_by(name, revision, inference)

    def route_by(self, directory: Directory) -> None:
        """Calls by gRPC are for the models of `directory` from now on."""
        if self.grpc is not None:
            self.grpc.route_by(directory)

    async def start(self, host: str, grpc_port: int) -> None:
        """Answer on all of them."""
        await self.data.start()
        await self.management.start()
        log.info("management at %s:%d", host, self.management.port)
        if self.grpc is not None:
            log.info("gRPC at %s:%d", host, await self.grpc.start(host, grpc_port))

    async def drain(self, limit: float) -> None:
        """Return when nobody sends requests any more and all are answered, or after `limit` seconds."""
        draining = [self.data.drain(QUIET, limit)]
        if self.grpc is not None:
            draining.append(self.grpc.drain(QUIET, limit))
        await asyncio.gather(*draining)

    async def close(self, grpc_within: float | None = None) -> None:
        """Accept nothing more, and return when what is in flight has ended; calls by gRPC within so many seconds."""
        await self.data.close()
        with contextlib.suppress(TimeoutError):  # a load call may fetch for an hour; it ends with the loop
            async with asyncio.timeout(LONGEST_CALL):
                await self.management.close()
        if self.grpc is not None:
            await (self.grpc.close() if grpc_within is None else self.grpc.close(grpc_within))
