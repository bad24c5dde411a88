"""The lifecycle of a model in this server, and the liveness and readiness that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from serving.engines.base.engine import Engine, Signature
from serving.modelserver.base.assignment import BatchBounds
from serving.modelserver.base.errors import NotReady
from serving.modelserver.codec.protocol_v2 import V2Codec
from serving.modelserver.execution.workers import Workers

DEVICE_LOST: Final = "the accelerator of this server is lost until it is restarted: try again"
GONE: Final = "the model is not loaded any more: try again"


class ServedModel(msgspec.Struct, frozen=True):
    """A loaded model.

    `pace`: CPU seconds of one small inference; None when it is unknown. `memory`: bytes that the model takes, at least
    the size of its files. `example`: content of its `example.json`, which may not have been validated; None when there
    is none or it is too large to show. `batching`: batches that the model's files describe, for a Model that sets none.
    """

    name: str
    revision: str
    engine: Engine
    codec: V2Codec
    pace: float | None
    memory: int = 0
    example: bytes | None = None
    batching: BatchBounds | None = None

    @property
    def signature(self) -> Signature:
        """The input and output tensors of the model."""
        return self.engine.signature

    @property
    def versions(self) -> Sequence[str]:
        """The protocol's versions of the model: only the revision."""
        return (self.revision,)


class ModelLifecycle:
    """Loading → serving → draining. A model is not ready either while all `workers` hang or the accelerator is lost.

    With `queues_before_load` the server is ready before it has a model, because requests wait for the model.
    `serves_own_paths` is whether the model itself answers all paths of the server, except those of its health.
    `blocked_reason` explains why the model is temporarily unavailable; "" when it is available.
    """

    def __init__(self, workers: Workers, queues_before_load: bool = False) -> None:
        self._workers = workers
        self._queues_before_load = queues_before_load
        self._model: ServedModel | None = None
        self._draining = False
        self.blocked_reason = ""
        self.serves_own_paths = False

    @property
    def ready(self) -> bool:
        """Whether the server accepts new requests."""
        accepts = (self._queues_before_load or self._model is not None) and not self.blocked_reason
        failed = self._workers.exhausted or self._workers.hung.device_lost.is_set()
        return accepts and not self._draining and not failed

    @property
    def live(self) -> bool:
        """Whether the server can recover without a restart. Hung threads and a lost accelerator need one."""
        hung = self._workers.hung
        return not (hung.exceeds_limit or hung.device_lost.is_set())

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._draining

    @property
    def reason(self) -> str:
        """Why the server is not ready."""
        if self._draining:
            return "the server is shutting down"
        if self.blocked_reason:
            return self.blocked_reason
        if self._workers.hung.device_lost.is_set():
            return DEVICE_LOST
        return "too many threads hang" if self._workers.exhausted else "the model is loading"

    @property
    def has_model(self) -> bool:
        """Whether the model is loaded."""
        return self._model is not None

    def set_model(self, model: ServedModel) -> None:
        """Serve this loaded model."""
        self._model = model
        self.serves_own_paths = getattr(model.engine, "serves_own_paths", False)

    def remove_model(self) -> None:
        """Stop serving the model: `model` raises from now on."""
        self._model = None
        self.blocked_reason = self.blocked_reason or GONE

    def queue_before_load(self) -> None:
        """Accept requests from now on although the model is not loaded, because they wait for it."""
        self._queues_before_load = True

    def mark_device_lost(self) -> None:
        """Record that the accelerator is lost, so no inference can succeed in this process any more."""
        self._workers.hung.device_lost.set()

    def drain(self) -> None:
        """Become unready; requests that still arrive are served."""
        self._draining = True

    def model(self) -> ServedModel:
        """Return the loaded model. Raises NotReady."""
        if self._model is None:
            raise NotReady(self.reason)
        return self._model
