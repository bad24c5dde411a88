"""Whether this server may be sent requests, and with which model it answers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from serving.engines.base.engine import Engine, Signature
from serving.modelserver.base.errors import NotReady
from serving.modelserver.codec.protocol_v2 import V2Codec
from serving.modelserver.execution.workers import Workers

DEVICE_LOST: Final = "the accelerator of this server is lost until it is restarted: try again"
GONE: Final = "the model is not loaded any more: try again"


class ServedModel(msgspec.Struct, frozen=True):
    """A loaded model; `pace` is the CPU time (s) of one small inference, None when it is not known.

    `memory`: bytes that it takes, at least those of its files. `example`: the content of its `example.json`, which may
    not have been checked; None without one, or for one that is too large to show.
    """

    name: str
    revision: str
    engine: Engine
    codec: V2Codec
    pace: float | None
    memory: int = 0
    example: bytes | None = None

    @property
    def signature(self) -> Signature:
        """Its tensors."""
        return self.engine.signature

    @property
    def versions(self) -> Sequence[str]:
        """Its versions as the protocol names them: the revision."""
        return (self.revision,)


class Lifecycle:
    """Loading → serving → draining; not ready either while all of `workers` hang, or without the accelerator.

    A server that `holds` requests until it has its model is ready before. `withheld` says why a model is not to be had
    for the time being ("": it is).
    """

    def __init__(self, workers: Workers, holds: bool = False) -> None:
        self._workers = workers
        self._holds = holds
        self._model: ServedModel | None = None
        self._draining = False
        self.withheld = ""

    @property
    def ready(self) -> bool:
        """Whether new requests are welcome."""
        welcome = (self._holds or self._model is not None) and not self.withheld
        lost = self._workers.exhausted or self._workers.hanging.device_lost.is_set()
        return welcome and not self._draining and not lost

    @property
    def live(self) -> bool:
        """Whether there is hope: what hangs, in any model, does not begin anew, a server can."""
        hanging = self._workers.hanging
        return not (hanging.too_much or hanging.device_lost.is_set())

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._draining

    @property
    def reason(self) -> str:
        """Why it is not ready."""
        if self._draining:
            return "the server is shutting down"
        if self.withheld:
            return self.withheld
        if self._workers.hanging.device_lost.is_set():
            return DEVICE_LOST
        return "too many threads hang" if self._workers.exhausted else "the model is loading"

    @property
    def serves(self) -> bool:
        """Whether there is a model."""
        return self._model is not None

    def serve(self, model: ServedModel) -> None:
        """The model is loaded."""
        self._model = model

    def end(self) -> None:
        """Nobody gets the model from now on."""
        self._model = None
        self.withheld = self.withheld or GONE

    def hold(self) -> None:
        """Requests are held until their model is here, so that they are welcome."""
        self._holds = True

    def lose_device(self) -> None:
        """Nothing can be computed in this process any more."""
        self._workers.hanging.device_lost.set()

    def drain(self) -> None:
        """No new requests, please; those that come are still served."""
        self._draining = True

    def model(self) -> ServedModel:
        """The model. Raises NotReady."""
        if self._model is None:
            raise NotReady(self.reason)
        return self._model
