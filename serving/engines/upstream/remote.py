"""An engine that is an HTTP server, to which the model server passes requests on: in a process here, or elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from serving.engines.base.engine import BaseEngine, Signature
from serving.engines.base.errors import InferenceFailed
from serving.engines.upstream.adapters import AdapterTable
from serving.engines.upstream.client import Address
from serving.engines.upstream.program import EngineLoad
from serving.engines.upstream.usage import TokenCounter


class EngineState(NamedTuple):
    """Whether the engine takes requests, why not ("" if it does), and what it is doing.

    It tells its state at `address`; requests go to `entrance`. `lost` is whether only a restart of the whole replica
    helps.
    """

    address: Address | None
    reason: str
    load: EngineLoad = EngineLoad()
    lost: bool = False
    entrance: Address | None = None


class RemoteEngine(BaseEngine, ABC):
    """An HTTP server that computes `slots` requests at once.

    `paths` are those of OpenAI's API that callers may use, `adapters` the LoRA adapters, `tokens` those of all
    responses, and `unreachable` is the error for a request that finds no server at its address.
    """

    paths: frozenset[str] = frozenset()
    unreachable = "the engine has just ended and is started again: try again"

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature, is_async=True)
        self.slots = 0
        self.adapters = AdapterTable([])
        self.tokens = TokenCounter()

    @property
    @abstractmethod
    def state(self) -> EngineState:
        """The state by the last reading."""

    @property
    def pid(self) -> int | None:
        """The id of the engine's process; None without one here, or while it is not running."""
        return None

    @abstractmethod
    def page(self, path: str) -> bytes:
        """Return a page of the engine, such as its metrics; blocks. Raises NoSuchPage, InferenceFailed."""

    def enter(self) -> Address | None:
        """Count a request, which must `leave`, and return where to send it; does not block.

        None: the engine sleeps or is about to, so call `wake` and try again. Raises InferenceFailed if it takes none.
        """
        state = self.state
        if state.address is None:
            raise InferenceFailed(state.reason)
        return state.entrance or state.address

    def leave(self) -> None:
        """End a request."""

    def wake(self) -> None:
        """Wake the engine if it sleeps; blocks. Raises EngineError."""
