"""The methods of the inference protocol over gRPC, each from a message's bytes to the answer's.

gRPC hands over and takes bytes: messages are decoded where the model's work is done, so that they have a slot and a
thread as it does, and what cannot be decoded is the caller's error and not the server's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError

from serving.modelserver.base.errors import (
    BadRequest,
    ClientLeft,
    DeadlineExceeded,
    ModelFailed,
    NotFound,
    QueueExpired,
    ServingError,
    UnsupportedType,
    release_frames,
)
from serving.modelserver.base.limits import Lease
from serving.modelserver.base.split import CURRENT, RECEIVED_KEY, InFlight, SplitStats, is_of_split
from serving.modelserver.codec.messages import metadata_shape
from serving.modelserver.codec.protocol_v2 import PreparedRequest
from serving.modelserver.endpoints.app import EXTENSIONS, SERVER_NAME
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.execution.inference import Encode
from serving.modelserver.execution.lifecycle import Lifecycle, ServedModel
from serving.modelserver.execution.target import SHOWN, Target
from serving.modelserver.grpc import messages
from serving.modelserver.grpc.codec import GrpcCodec
from serving.modelserver.grpc.library import grpc
from serving.modelserver.grpc.reading import Context, Messages
from serving.modelserver.grpc.statuses import REVISION, Metadata, code_of, metadata_of, status_of
from serving.modelserver.grpc.untaken import Untaken
from serving.modelserver.grpc.wire import text_of
from serving.modelserver.observe.response_stats import GRPC, GRPC_OTHER

log = logging.getLogger(__name__)

INFER: Final = "ModelInfer"
SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"
REPOSITORY: Final = ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload")
"""Methods of an extension that other servers have here."""
UNSUPPORTED: Final = (
    "ModelStreamInfer", "ModelConfig", "ModelStatistics", "TraceSetting", "LogSettings",
    *(f"{kind}SharedMemory{verb}" for kind in ("System", "Cuda") for verb in ("Status", "Register", "Unregister")),
)  # fmt: skip
"""Methods of other extensions of Triton's service."""
MODEL_NAME: Final = 1
"""Number of the field `model_name` in a ModelInferRequest."""
_OK: Final = code_of(grpc.StatusCode.OK)
_CANCELLED: Final = code_of(grpc.StatusCode.CANCELLED)
_ANSWERED: Final = 200  # HTTP's status of an answer

Method = Callable[[bytes, Context, Lease], Awaitable[bytes]]
"""What a message is answered; it holds memory, for whoever works on it longer than this lasts."""


class Observer(Protocol):
    """Who is told of each answer."""

    split: SplitStats

    def observe(self, protocol: str, code: int, seconds: float) -> None:
        """An answer: gRPC's number of its status, and how long it took."""
        ...


class CallContext(Context, Protocol):
    """What is used of `grpc.aio.ServicerContext` besides."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None:
        """The headers of the call, names in lower case."""
        ...


class Caller:
    """A caller over gRPC, for `Inference`: gRPC cancels the task of one that leaves, so there is nothing to call."""

    def on_disconnect(self, callback: Callable[[], object] | None) -> None:
        """Nothing."""


CALLER: Final = Caller()


class Directory(Protocol):
    """The models of a server that has many."""

    def using(self, name: str, *, work: bool) -> AbstractAsyncContextManager[Target]:
        """The model, as soon as it is loaded, and for so long. Raises ServingError."""
        ...

    def ready(self, name: str, version: str) -> bool:
        """Whether requests for it are welcome. Raises NotFound."""
        ...


class Service:
    """All methods; `calls` is how many inferences were asked for so far.

    They are for the only model, before which they wait in `hold`, or for one of a `Directory`.
    """

    def __init__(
        self, lifecycle: Lifecycle, hold: PendingRequests | None, receiver: Messages, untaken: Untaken,
        metrics: Observer | None, monotonic: Callable[[], float], token: bytes = b"",
    ) -> None:  # fmt: skip
        self._token = token
        self._lifecycle = lifecycle
        self._hold = hold
        self._receiver = receiver
        self._untaken = untaken
        self._metrics = metrics
        self._monotonic = monotonic
        self._target: Target | None = None
        self._directory: Directory | None = None
        self._labels: Metadata = ()
        self._codec: tuple[ServedModel, GrpcCodec] | None = None
        self.calls = 0

    def label(self, revision: str) -> None:
        """The revision of all answers from now on."""
        self._labels = ((REVISION, revision),)

    def answer_by(self, target: Target) -> None:
        """There is a model, or it is known which there will be."""
        self._target = target

    def route_by(self, directory: Directory) -> None:
        """There are many models."""
        self._directory = directory

    def handlers(self) -> Sequence[Any]:
        """All methods, for a `grpc.aio` server."""
        refused: dict[str, Method] = dict.fromkeys(REPOSITORY, _refuse_repository)
        refused |= {name: partial(_refuse, name) for name in UNSUPPORTED}
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
        """Each as one that reads its messages itself, for gRPC would read them before it asks anybody."""
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
                answer = await self._answer(method, context, judged)
                self._untaken.add(context, answer)
                code, status = _OK, _ANSWERED
                return answer
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
            # gRPC keeps the error that it raises here, and with it the context: outside of `except` there is none.
            await context.abort(*refusal)
            raise RuntimeError("gRPC went on with a call that was aborted")

        return endpoint

    def _judged(self, context: CallContext, now: float) -> InFlight | None:
        """Return the entry of a call that the split sent here; None for any other."""
        if self._metrics is None:
            return None
        metadata = context.invocation_metadata() or ()
        headers = ((name.encode(), value.encode() if isinstance(value, str) else value) for name, value in metadata)
        return self._metrics.split.begin({}, now) if is_of_split(headers, self._token) else None

    async def _answer(self, method: Method, context: Context, judged: InFlight | None) -> bytes:
        """The answer, or b"" to a caller that left. Raises ServingError."""
        message = await self._receiver.receive(context)
        if judged is not None:
            judged.scope[RECEIVED_KEY] = self._monotonic()
        held = self._receiver.held(message)
        try:
            return await method(message, context, held)
        except ServingError:
            raise
        except Exception as error:
            log.exception("a method failed")
            raise ModelFailed("the server failed: its log has the details") from error
        finally:
            held.release()

    async def _live(self, *_: object) -> bytes:
        return _bytes(messages.ServerLiveResponse(live=self._lifecycle.live))

    async def _ready(self, *_: object) -> bytes:
        return _bytes(messages.ServerReadyResponse(ready=self._lifecycle.ready))

    async def _check_health(self, message: bytes, *_: object) -> bytes:
        asked = _parsed(messages.HealthCheckRequest, message).service
        if asked not in ("", SERVICE):
            raise NotFound(f"unknown service {asked[:SHOWN]!r}")
        serving = messages.HealthCheckResponse.SERVING
        status = serving if self._lifecycle.ready else messages.HealthCheckResponse.NOT_SERVING
        return _bytes(messages.HealthCheckResponse(status=status))

    async def _server_metadata(self, *_: object) -> bytes:
        from clusters.base.version import VERSION  # reads the distribution's metadata

        return _bytes(messages.ServerMetadataResponse(name=SERVER_NAME, version=VERSION, extensions=EXTENSIONS))

    async def _model_ready(self, message: bytes, *_: object) -> bytes:
        request = _parsed(messages.ModelReadyRequest, message)
        return _bytes(messages.ModelReadyResponse(ready=await self._is_ready(request.name, request.version)))

    async def _is_ready(self, name: str, version: str) -> bool:
        """Whether the model is ready. A model or version that is not here is not ready, as on Triton."""
        try:
            if self._directory is not None:
                return self._directory.ready(name, version)
            (await self._known_target(work=False)).check(name, version)
        except NotFound:
            return False
        return self._lifecycle.ready

    async def _model_metadata(self, message: bytes, context: Context, _: Lease) -> bytes:
        request = _parsed(messages.ModelMetadataRequest, message)
        async with self._using(request.name, context, work=False) as target:
            target.check(request.name, request.version)
            return _described(target.inference.model())

    async def _infer(self, message: bytes, context: Context, held: Lease) -> bytes:
        self.calls += 1
        self._untaken.check()
        target, began = self._target, None
        if target is not None:
            return await self._infer_by(target, began, message, context, held)
        began = asyncio.get_running_loop().time()  # the time that it may take began before there is a model
        name = "" if self._directory is None else text_of(message, MODEL_NAME)
        async with self._using(name, context, work=True) as target:
            return await self._infer_by(target, began, message, context, held)

    async def _infer_by(
        self, target: Target, began: float | None, message: bytes, context: Context, held: Lease
    ) -> bytes:
        ask = partial(self._ask, target, message)
        return await target.inference.infer(ask, len(message), CALLER, context.time_remaining(), began, held)

    @asynccontextmanager
    async def _using(self, name: str, context: Context, *, work: bool) -> AsyncIterator[Target]:
        """The model for a call. Raises ServingError."""
        if self._directory is None:
            yield await self._known_target(work=work)
            return
        async with self._directory.using(name, work=work) as target:
            context.set_trailing_metadata(((REVISION, target.revision),))
            yield target

    async def _known_target(self, *, work: bool) -> Target:
        """Waits, in a pool member, for the model. Raises ServingError."""
        if self._target is None and self._hold is not None:
            await self._hold.wait(work=work)
        if self._target is None:
            raise ClientLeft  # not reached: who opens the hold has told of the model
        return self._target

    def _ask(self, target: Target, message: bytes, model: ServedModel) -> tuple[PreparedRequest, Encode[bytes]]:
        """Raises BadRequest, TooLarge, NotFound."""
        codec = self._codec_of(model)
        request = codec.parse(message)
        target.check(request.message.model_name, request.message.model_version)
        return codec.decode(request), codec.encode

    def _codec_of(self, model: ServedModel) -> GrpcCodec:
        made = self._codec
        if made is None or made[0] is not model:
            made = self._codec = model, GrpcCodec(model.codec)
        return made[1]


def _status_of(error: ServingError, context: Context) -> int:
    """Return the HTTP status of the error; that of a caller that left when the caller's own deadline has passed."""
    left = context.time_remaining()
    if isinstance(error, DeadlineExceeded | QueueExpired) and left is not None and left <= 0.0:
        return ClientLeft.status
    return error.status


async def _refuse_repository(*_: object) -> bytes:
    raise UnsupportedType("models are loaded by HTTP on the management port, not here")


async def _refuse(name: str, *_: object) -> bytes:
    metrics = "; /metrics on the management port has statistics" if name == "ModelStatistics" else ""
    raise UnsupportedType(f"{name} is not supported: ServerMetadata lists the extensions of this server{metrics}")


def _parsed(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise BadRequest(f"the message is no {kind.DESCRIPTOR.name}") from error


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _described(model: ServedModel) -> bytes:
    answer = messages.ModelMetadataResponse(name=model.name, versions=model.versions, platform=model.signature.platform)
    for field, specs in ((answer.inputs, model.signature.inputs), (answer.outputs, model.signature.outputs)):
        for spec in specs:
            field.add(name=spec.name, datatype=spec.datatype, shape=metadata_shape(spec))
    return _bytes(answer)
