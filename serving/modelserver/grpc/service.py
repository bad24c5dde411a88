"""The methods of the inference protocol over gRPC. Each takes the bytes of a message and returns those of the response.

gRPC passes bytes: a message is decoded as part of the inference, so that decoding has the same slot and thread. An
undecodable message is then a client error instead of a server error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError

from clusters.net.server.errors import RECEIVED_KEY
from serving.modelserver.base.errors import (
    ClientLeft,
    DeadlineExceeded,
    InvalidRequest,
    ModelFailed,
    QueueExpired,
    ResourceNotFound,
    ServingError,
    UnsupportedType,
    release_frames,
)
from serving.modelserver.base.limits import Lease
from serving.modelserver.base.split import CURRENT, TOKENS_KEY, InFlight, SplitStats, TokenTimes, is_of_split
from serving.modelserver.codec.messages import metadata_shape
from serving.modelserver.codec.protocol_v2 import PreparedRequest
from serving.modelserver.endpoints.app import EXTENSIONS, SERVER_NAME
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.execution.inference import Respond
from serving.modelserver.execution.lifecycle import ModelLifecycle, ServedModel
from serving.modelserver.execution.target import SHOWN, InferenceTarget
from serving.modelserver.grpc import messages
from serving.modelserver.grpc.codec import GrpcCodec
from serving.modelserver.grpc.flow_control import Context, MessageReceiver, ResponseBackpressure
from serving.modelserver.grpc.library import grpc
from serving.modelserver.grpc.statuses import REVISION, Metadata, code_of, metadata_of, status_of
from serving.modelserver.grpc.wire import text_of
from serving.modelserver.observe.response_stats import GRPC, GRPC_OTHER
from serving.modelserver.openai.upstreams import upstream_of

log = logging.getLogger(__name__)

INFER: Final = "ModelInfer"
SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"
REPOSITORY: Final = ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload")
"""Methods of the model repository extension, which other servers offer on the gRPC port."""
UNSUPPORTED: Final = (
    "ModelStreamInfer", "ModelConfig", "ModelStatistics", "TraceSetting", "LogSettings",
    *(f"{kind}SharedMemory{verb}" for kind in ("System", "Cuda") for verb in ("Status", "Register", "Unregister")),
)  # fmt: skip
"""Methods of other extensions of Triton's service."""
MODEL_NAME: Final = 1
"""Field number of `model_name` in a ModelInferRequest."""
_OK: Final = code_of(grpc.StatusCode.OK)
_CANCELLED: Final = code_of(grpc.StatusCode.CANCELLED)
_SUCCESS: Final = 200  # as an HTTP status

Method = Callable[[bytes, Context, Lease], Awaitable[bytes]]
"""Returns the response to a message. `Lease` is the memory of the message, for threads that outlast the call."""


class CallMetrics(Protocol):
    """Counts responses."""

    split: SplitStats

    def observe(self, protocol: str, code: int, seconds: float) -> None:
        """Count a response: the number of its gRPC status, and its duration."""
        ...

    def observe_latency(self, protocol: str, code: int, seconds: float | None) -> None:
        """Count the time by which a response is judged in place of its duration; None if it has no known time."""
        ...


class CallContext(Context, Protocol):
    """The part of `grpc.aio.ServicerContext` that the handlers use in addition."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None:
        """Return the headers of the call, with names in lower case."""
        ...


class GrpcClient:
    """A gRPC client, for `Inference`. gRPC cancels the task of a disconnected client, so there is nothing to call."""

    def on_disconnect(self, callback: Callable[[], object] | None) -> None:
        """Do nothing."""


CLIENT: Final = GrpcClient()


class ModelDirectory(Protocol):
    """The models of a server of many models."""

    def using(self, name: str, *, work: bool) -> AbstractAsyncContextManager[InferenceTarget]:
        """Wait until the model is loaded, and keep it loaded. Raises ServingError."""
        ...

    def ready(self, name: str, version: str) -> bool:
        """Return whether the model accepts requests. Raises ResourceNotFound."""
        ...


class InferenceService:
    """The handlers of all methods. `calls` counts the inferences that were requested so far.

    Calls are for the only model, for which they wait in `pending`, or for one of a `ModelDirectory`.
    """

    def __init__(
        self, lifecycle: ModelLifecycle, pending: PendingRequests | None, receiver: MessageReceiver,
        backpressure: ResponseBackpressure, metrics: CallMetrics | None, monotonic: Callable[[], float],
        token: bytes = b"",
    ) -> None:  # fmt: skip
        self._token = token
        self._lifecycle = lifecycle
        self._pending = pending
        self._receiver = receiver
        self._backpressure = backpressure
        self._metrics = metrics
        self._monotonic = monotonic
        self._target: InferenceTarget | None = None
        self._directory: ModelDirectory | None = None
        self._labels: Metadata = ()
        self._codec: tuple[ServedModel, GrpcCodec] | None = None
        self.calls = 0

    def set_revision(self, revision: str) -> None:
        """Label all responses with this revision from now on."""
        self._labels = ((REVISION, revision),)

    def serve_model(self, target: InferenceTarget) -> None:
        """Route calls to this model, which may not be loaded yet."""
        self._target = target

    def serve_directory(self, directory: ModelDirectory) -> None:
        """Route calls to the models of the directory."""
        self._directory = directory

    def handlers(self) -> Sequence[Any]:
        """Return the handlers of all methods, for a `grpc.aio` server."""

        async def refuse_repository(*_: object) -> bytes:
            raise UnsupportedType("this port does not load models: use HTTP on the management port")

        async def refuse(name: str, *_: object) -> bytes:
            hint = "; /metrics on the management port has statistics" if name == "ModelStatistics" else ""
            raise UnsupportedType(f"{name} is not supported: ServerMetadata lists the extensions of this server{hint}")

        refused: dict[str, Method] = dict.fromkeys(REPOSITORY, refuse_repository)
        refused |= {name: partial(refuse, name) for name in UNSUPPORTED}
        methods: Mapping[str, Method] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            INFER: self._infer,
            **refused,
        }
        return (self._handler(SERVICE, methods), self._handler(HEALTH, {"Check": self._check_health}))

    def _handler(self, service: str, methods: Mapping[str, Method]) -> Any:
        """Return a handler that reads messages itself: for unary methods gRPC would read them before the handler."""
        handlers = {
            name: grpc.stream_unary_rpc_method_handler(self._endpoint(method, GRPC if name == INFER else GRPC_OTHER))
            for name, method in methods.items()
        }
        return grpc.method_handlers_generic_handler(service, handlers)

    def _endpoint(self, method: Method, protocol: str) -> Callable[[Any, CallContext], Awaitable[bytes]]:
        async def endpoint(_: Any, context: CallContext) -> bytes:
            start, code, status = self._monotonic(), _CANCELLED, ClientLeft.status
            judged = self._judged(context, start) if protocol == GRPC else None
            CURRENT.set(judged)
            try:
                context.set_trailing_metadata(self._labels)
                response = await self._respond(method, context, judged)
                self._backpressure.add(context, response)
                code, status = _OK, _SUCCESS
                return response
            except ServingError as error:
                refusal = status_of(error), str(error), self._labels + metadata_of(error)
                code, status = code_of(refusal[0]), _status_of(error, context)
                release_frames(error)
            finally:
                now = self._monotonic()
                if self._metrics is not None:
                    self._metrics.observe(protocol, code, now - start)
                    if judged is not None:
                        self._metrics.split.end(judged, status, now)
            # gRPC keeps the error that `abort` raises. Outside of `except` it has no `__context__` that keeps memory.
            await context.abort(*refusal)
            raise RuntimeError("gRPC continued an aborted call")

        return endpoint

    def _judged(self, context: CallContext, now: float) -> InFlight | None:
        """Return the entry of a call that the traffic split sent here; None for any other."""
        if self._metrics is None:
            return None
        metadata = context.invocation_metadata() or ()
        headers = ((name.encode(), value.encode() if isinstance(value, str) else value) for name, value in metadata)
        return self._metrics.split.begin({}, now) if is_of_split(headers, self._token) else None

    async def _respond(self, method: Method, context: Context, judged: InFlight | None) -> bytes:
        """Receive the message of a call and return its response. Raises ServingError."""
        message = await self._receiver.receive(context)
        if judged is not None:
            judged.scope[RECEIVED_KEY] = self._monotonic()
        held = self._receiver.lease(message)
        try:
            return await method(message, context, held)
        except ServingError:
            raise
        except Exception as error:
            log.exception("a gRPC method failed")
            raise ModelFailed("the server failed: its log has the details") from error
        finally:
            held.release()

    async def _live(self, *_: object) -> bytes:
        return _serialize(messages.ServerLiveResponse(live=self._lifecycle.live))

    async def _ready(self, *_: object) -> bytes:
        return _serialize(messages.ServerReadyResponse(ready=self._lifecycle.ready))

    async def _check_health(self, message: bytes, *_: object) -> bytes:
        service = _parse(messages.HealthCheckRequest, message).service
        if service not in ("", SERVICE):
            raise ResourceNotFound(f"unknown service {service[:SHOWN]!r}")
        serving = messages.HealthCheckResponse.SERVING
        status = serving if self._lifecycle.ready else messages.HealthCheckResponse.NOT_SERVING
        return _serialize(messages.HealthCheckResponse(status=status))

    async def _server_metadata(self, *_: object) -> bytes:
        from clusters.base.distribution import VERSION  # reads the distribution's metadata

        return _serialize(messages.ServerMetadataResponse(name=SERVER_NAME, version=VERSION, extensions=EXTENSIONS))

    async def _model_ready(self, message: bytes, *_: object) -> bytes:
        request = _parse(messages.ModelReadyRequest, message)
        try:
            if self._directory is not None:
                ready = self._directory.ready(request.name, request.version)
            else:
                (await self._wait_for_target(work=False)).check(request.name, request.version)
                ready = self._lifecycle.ready
        except ResourceNotFound:  # an unknown model or version is not ready, as on Triton
            ready = False
        return _serialize(messages.ModelReadyResponse(ready=ready))

    async def _model_metadata(self, message: bytes, context: Context, _: Lease) -> bytes:
        request = _parse(messages.ModelMetadataRequest, message)
        async with self._using(request.name, context, work=False) as target:
            target.check(request.name, request.version)
            return _describe(target.inference.model())

    async def _infer(self, message: bytes, context: Context, held: Lease) -> bytes:
        self.calls += 1
        self._backpressure.check()
        if self._target is not None:
            return await self._infer_on(self._target, None, message, context, held)
        began = asyncio.get_running_loop().time()  # the time of the request begins before the model is loaded
        name = "" if self._directory is None else text_of(message, MODEL_NAME)
        async with self._using(name, context, work=True) as target:
            return await self._infer_on(target, began, message, context, held)

    async def _infer_on(
        self, target: InferenceTarget, began: float | None, message: bytes, context: Context, held: Lease
    ) -> bytes:
        if upstream_of(target.inference.model().engine) is not None:
            self._leave_untimed()
        prepare = partial(self._prepare, target, message)
        return await target.inference.infer(prepare, len(message), CLIENT, context.time_remaining(), began, held)

    def _leave_untimed(self) -> None:
        """Count the current call without a time: the completion takes as long as the caller's `max_tokens`."""
        if self._metrics is not None:
            self._metrics.observe_latency(GRPC, _OK, None)
        judged = CURRENT.get()
        if judged is not None:
            judged.scope[TOKENS_KEY] = TokenTimes(streamed=False)

    @asynccontextmanager
    async def _using(self, name: str, context: Context, *, work: bool) -> AsyncIterator[InferenceTarget]:
        """Wait for the model of a call. Raises ServingError."""
        if self._directory is None:
            yield await self._wait_for_target(work=work)
            return
        async with self._directory.using(name, work=work) as target:
            context.set_trailing_metadata(((REVISION, target.revision),))
            yield target

    async def _wait_for_target(self, *, work: bool) -> InferenceTarget:
        """Return the only model; in a pool member, wait for it. Raises ServingError."""
        if self._target is None and self._pending is not None:
            await self._pending.wait(work=work)
        if self._target is None:
            raise ClientLeft  # not reached: `serve_model` is called before the pending requests continue
        return self._target

    def _prepare(
        self, target: InferenceTarget, message: bytes, model: ServedModel
    ) -> tuple[PreparedRequest, Respond[bytes]]:
        """Decode a request. Raises InvalidRequest, ContentTooLarge, ResourceNotFound."""
        cached = self._codec
        if cached is None or cached[0] is not model:
            cached = self._codec = model, GrpcCodec(model.codec)
        codec = cached[1]
        request = codec.parse(message)
        target.check(request.message.model_name, request.message.model_version)
        return codec.decode(request), codec.encode


def _status_of(error: ServingError, context: Context) -> int:
    """Return the HTTP status of the error; 499 when the client's own deadline has passed."""
    left = context.time_remaining()
    if isinstance(error, DeadlineExceeded | QueueExpired) and left is not None and left <= 0.0:
        return ClientLeft.status
    return error.status


def _parse(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise InvalidRequest(f"the message is not a {kind.DESCRIPTOR.name}") from error


def _serialize(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _describe(model: ServedModel) -> bytes:
    response = messages.ModelMetadataResponse(
        name=model.name, versions=model.versions, platform=model.signature.platform
    )
    for field, specs in ((response.inputs, model.signature.inputs), (response.outputs, model.signature.outputs)):
        for spec in specs:
            field.add(name=spec.name, datatype=spec.datatype, shape=metadata_shape(spec))
    return _serialize(response)
