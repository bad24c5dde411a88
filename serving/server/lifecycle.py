"""Whether this server may be sent requests, and with which model it answers them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.engines.base import Engine, Signature
from serving.server.errors import NotReady
from serving.server.protocol_v2 import Codec
from serving.server.workers import Workers


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded model; `pace` is the CPU time (s) of one small inference, None when it is not known."""

    name: str
    revision: str
    engine: Engine
    codec: Codec
    pace: float | None

    @property
    def signature(self) -> Signature:
        """Its tensors."""
        return self.engine.signature

    @property
    def versions(self) -> Sequence[str]:
        """Its versions as the protocol names them: the revision."""
        return (self.revision,)


class Lifecycle:
    """Loading → serving → draining; not ready either while all of `workers` hang.

    A server that `holds` requests until it has its model is ready before.
    """

    def __init__(self, workers: Workers, holds: bool = False) -> None:
        self._workers = workers
        self._holds = holds
        self._model: ServedModel | None = None
        self._draining = False

    @property
    def ready(self) -> bool:
        """Whether new requests are welcome."""
        return (self._holds or self._model is not None) and not self._draining and not self._workers.exhausted

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._draining

    @property
    def reason(self) -> str:
        """Why it is not ready."""
        if self._draining:
            return "the server is shutting down"
        return "the model is loading" if self._model is None else "the model hangs"

    @property
    def serves(self) -> bool:
        """Whether there is a model."""
        return self._model is not None

    def serve(self, model: ServedModel) -> None:
        """The model is loaded."""
        self._model = model

    def drain(self) -> None:
        """No new requests, please; those that come are still served."""
        self._draining = True

    def model(self) -> ServedModel:
        """The model. Raises NotReady."""
        if self._model is None:
            raise NotReady(self.reason)
        return self._model
