"""The methods of the inference protocol over gRPC, each from a message's bytes to the answer's.

gRPC hands over and takes bytes: messages are decoded where the model's work is done, so that they have a slot and a
thread as it does, and what cannot be decoded is the caller's error and not the server's.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError

from serving.engines.base import ANY, Cancellation, TensorSpec
from serving.server.app import EXTENSIONS, SERVER_NAME
from serving.server.errors import BadRequest, ClientLeft, ModelFailed, NotFound, ServingError, UnsupportedType
from serving.server.grpc import messages
from serving.server.grpc.codec import GrpcCodec
from serving.server.grpc.library import grpc
from serving.server.grpc.reading import Context, Messages
from serving.server.grpc.statuses import REVISION, Metadata, code_of, metadata_of, status_of
from serving.server.hold import Hold
from serving.server.inference import Inference
from serving.server.lifecycle import Lifecycle, ServedModel
from serving.server.versions import is_version

log = logging.getLogger(__name__)

PROTOCOL: Final = "grpc"
SERVICE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"
REPOSITORY: Final = ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload")
"""Methods of an extension that other servers have here."""
_OK: Final = code_of(grpc.StatusCode.OK)
_CANCELLED: Final = code_of(grpc.StatusCode.CANCELLED)
_SHOWN: Final = 63  # characters of a caller's name that an error repeats: as many as a name has

Method = Callable[[bytes, Context], Awaitable[bytes]]


class Observer(Protocol):
    """Who is told of each answer."""

    def observe(self, protocol: str, code: int, seconds: float) -> None:
        """An answer: gRPC's number of its status, and how long it took."""
        ...


class Caller:
    """A caller over gRPC, for `Inference`: gRPC cancels the task of one that leaves, so there is nothing to call."""

    def when_gone(self, callback: Callable[[], object] | None) -> None:
        """Nothing."""


CALLER: Final = Caller()


@dataclass(frozen=True, slots=True)
class Target:
    """Which model is asked for, and who infers."""

    name: str
    revision: str
    inference: Inference

    def check(self, name: str, version: str) -> None:
        """Raise NotFound for another model or version; no version is any."""
        if name != self.name:
            raise NotFound(f"unknown model {name[:_SHOWN]!r}")
        if version and not is_version(version, self.revision):
            raise NotFound(f"model {self.name!r} has no version {version[:_SHOWN]!r} here")


class Service:
    """All methods; `calls` is how many inferences were asked for so far, `active` how many have no answer yet."""

    def __init__(
        self, lifecycle: Lifecycle, hold: Hold, receiver: Messages, metrics: Observer | None,
        monotonic: Callable[[], float],
    ) -> None:  # fmt: skip
        self._lifecycle = lifecycle
        self._hold = hold
        self._receiver = receiver
        self._metrics = metrics
        self._monotonic = monotonic
        self._target: Target | None = None
        self._labels: Metadata = ()
        self._codec: tuple[ServedModel, GrpcCodec] | None = None
        self.calls = 0
        self.active = 0

    def label(self, revision: str) -> None:
        """The revision of all answers from now on."""
        self._labels = ((REVISION, revision),)

    def answer_by(self, target: Target) -> None:
        """There is a model, or it is known which there will be."""
        self._target = target

    def handlers(self) -> Sequence[Any]:
        """All methods, for a `grpc.aio` server."""
        refused = dict.fromkeys(REPOSITORY, _refuse_repository)
        methods: Mapping[str, Method] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._infer,
            **refused,
        }
        return (self._handler(SERVICE, methods), self._handler(HEALTH, {"Check": self._check_health}))

    def _handler(self, service: str, methods: Mapping[str, Method]) -> Any:
        """Each as one that reads its messages itself, for gRPC would read them before it asks anybody."""
        handlers = {
            name: grpc.stream_unary_rpc_method_handler(self._endpoint(method)) for name, method in methods.items()
        }
        return grpc.method_handlers_generic_handler(service, handlers)

    def _endpoint(self, method: Method) -> Callable[[Any, Context], Awaitable[bytes]]:
        async def endpoint(_: Any, context: Context) -> bytes:
            start, code = self._monotonic(), _CANCELLED
            try:
                context.set_trailing_metadata(self._labels)
                answer = await self._answer(method, context)
                code = _OK
                return answer
            except ServingError as error:
                status = status_of(error)
                code = code_of(status)
                await context.abort(status, str(error), self._labels + metadata_of(error))
                raise  # not reached: `abort` raises
            finally:
                if self._metrics is not None:
                    self._metrics.observe(PROTOCOL, code, self._monotonic() - start)

        return endpoint

    async def _answer(self, method: Method, context: Context) -> bytes:
        """The answer, or b"" to a caller that left. Raises ServingError."""
        message = await self._receiver.receive(context)
        try:
            return await method(message, context)
        except ServingError:
            raise
        except Exception as error:
            log.exception("a method failed")
            raise ModelFailed("the server failed: its log has the details") from error
        finally:
            self._receiver.done(message)

    async def _live(self, _: bytes, __: Context) -> bytes:
        return _bytes(messages.ServerLiveResponse(live=True))

    async def _ready(self, _: bytes, __: Context) -> bytes:
        return _bytes(messages.ServerReadyResponse(ready=self._lifecycle.ready))

    async def _check_health(self, message: bytes, _: Context) -> bytes:
        asked = _parsed(messages.HealthCheckRequest, message).service
        if asked not in ("", SERVICE):
            raise NotFound(f"unknown service {asked[:_SHOWN]!r}")
        serving = messages.HealthCheckResponse.SERVING
        status = serving if self._lifecycle.ready else messages.HealthCheckResponse.NOT_SERVING
        return _bytes(messages.HealthCheckResponse(status=status))

    async def _server_metadata(self, _: bytes, __: Context) -> bytes:
        from serving.apis.version import VERSION  # reads the distribution's metadata

        return _bytes(messages.ServerMetadataResponse(name=SERVER_NAME, version=VERSION, extensions=EXTENSIONS))

    async def _model_ready(self, message: bytes, _: Context) -> bytes:
        request = _parsed(messages.ModelReadyRequest, message)
        (await self._known_target(work=False)).check(request.name, request.version)
        return _bytes(messages.ModelReadyResponse(ready=self._lifecycle.ready))

    async def _model_metadata(self, message: bytes, _: Context) -> bytes:
        request = _parsed(messages.ModelMetadataRequest, message)
        (await self._known_target(work=False)).check(request.name, request.version)
        model = self._lifecycle.model()
        answer = messages.ModelMetadataResponse(
            name=model.name, versions=model.versions, platform=model.signature.platform
        )
        for field, specs in ((answer.inputs, model.signature.inputs), (answer.outputs, model.signature.outputs)):
            for spec in specs:
                field.add(name=spec.name, datatype=spec.datatype, shape=_shape(spec))
        return _bytes(answer)

    async def _infer(self, message: bytes, context: Context) -> bytes:
        self.calls += 1
        self.active += 1
        try:
            target = self._target or await self._known_target(work=True)

            def job(model: ServedModel, cancellation: Cancellation | None) -> bytes:
                return answer(model, self._codec_of(model), target, message, cancellation)

            return await target.inference.run(job, len(message), CALLER, context.time_remaining())
        finally:
            self.active -= 1

    async def _known_target(self, *, work: bool) -> Target:
        """Waits, in a pool member, for the model. Raises ServingError."""
        if self._target is None:
            await self._hold.wait(work=work)
        if self._target is None:
            raise ClientLeft  # not reached: who opens the hold has told of the model
        return self._target

    def _codec_of(self, model: ServedModel) -> GrpcCodec:
        made = self._codec
        if made is None or made[0] is not model:
            made = self._codec = model, GrpcCodec(model.codec)
        return made[1]


def answer(
    model: ServedModel, codec: GrpcCodec, target: Target, message: bytes, cancellation: Cancellation | None
) -> bytes:
    """Decode, infer, encode. Raises ServingError, EngineError, and whatever code of others raises."""
    request = codec.parse(message)
    target.check(request.message.model_name, request.message.model_version)
    call = codec.decode(request)
    return codec.encode(call, model.engine.infer(call.inputs, call.outputs, cancellation))


async def _refuse_repository(_: bytes, __: Context) -> bytes:
    raise UnsupportedType("models are loaded by HTTP on the management port, not here")


def _parsed(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise BadRequest(f"the message is no {kind.DESCRIPTOR.name}") from error


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _shape(spec: TensorSpec) -> Sequence[int]:
    return (ANY,) if spec.shape is None else spec.shape  # the protocol has no word for an unknown rank
