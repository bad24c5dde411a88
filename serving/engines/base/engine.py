"""The interface between the model server and an engine, the same for every model format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from serving.engines.base.group import NO_GROUP, GroupOptions
from serving.engines.base.ray_options import RayOptions

if TYPE_CHECKING:  # programs that send lists may not have NumPy
    from serving.engines.base.datatypes import Tensor

ANY: int = -1
"""A dimension that each request chooses."""


class TensorSpec(NamedTuple):  # no msgspec in this module: programs that save models may not have it
    """One input or output: `shape` has `ANY` where it varies, and is None when even the rank is unknown.

    `columns` are the names of the columns of a matrix, in order, if the model's file records them.
    """

    name: str
    datatype: str
    shape: tuple[int, ...] | None
    columns: tuple[str, ...] = ()


class Signature(NamedTuple):
    """A model's tensors; `platform` is its name in the Open Inference Protocol (`onnx_onnxv1`).

    `optional` are the outputs that are computed only for a request that names them, `optional_inputs` the inputs that
    a request may omit.
    """

    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    optional: frozenset[str] = frozenset()
    optional_inputs: frozenset[str] = frozenset()

    @property
    def default_outputs(self) -> tuple[str, ...]:
        """The outputs of a request that names none."""
        return tuple(spec.name for spec in self.outputs if spec.name not in self.optional)


class Adapter(NamedTuple):
    """A LoRA adapter of a language model: its name, and the folder with its files."""

    name: str
    path: str


class LlmOptions(NamedTuple):
    """Options of a language model, `spec.llm` of a Model.

    context_length    tokens of one request, prompt and answer; 0 is the model's own, as far as the engine allows
    embeddings        whether the engine computes embeddings
    adapters          LoRA adapters, which callers ask for by the model NAME:ADAPTER
    tool_parser       the engine's parser of tool calls; "" is none (vLLM)
    engine_args       further options of the engine, by name, from its allow-list
    dynamic           whether adapters are loaded and unloaded while the engine serves (`UpstreamEngine.load_adapter`);
                      `adapters` are then those to make room for
    """

    context_length: int = 0
    embeddings: bool = False
    adapters: tuple[Adapter, ...] = ()
    tool_parser: str = ""
    engine_args: tuple[tuple[str, str], ...] = ()
    dynamic: bool = False


class EngineOptions(NamedTuple):
    """Options of an engine.

    threads       CPU threads of one inference
    allow_code    whether code in the artifact may run
    signature     the signature to serve, for a model with several; "" is its default one
    name          the name of the Model
    slots         most requests at once; 0 leaves it to the engine
    memory        bytes that the server may use; 0 if unknown
    llm           options of a language model
    timeout       longest time of a request in seconds; 0 if unknown
    group         the Pods of the replica, if it has several
    ray           options of a Ray Serve application
    allow_hosts   hosts elsewhere that may have private addresses (`clusters.net.ssrf`)
    alone         whether the server has no other model
    """

    threads: int = 1
    allow_code: bool = False
    signature: str = ""
    name: str = ""
    slots: int = 0
    memory: int = 0
    llm: LlmOptions = LlmOptions()
    timeout: float = 0.0
    group: GroupOptions = NO_GROUP
    ray: RayOptions = RayOptions()
    allow_hosts: frozenset[str] = frozenset()
    alone: bool = True


class Cancellation:
    """A request to stop a running inference; the event loop sets it, the inference's thread reads it."""

    __slots__ = ("_stop", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        self._stop: Callable[[], None] | None = None

    def on_cancel(self, stop: Callable[[], None]) -> None:
        """Call `stop` on cancellation, in place of an earlier callback; at once if it is cancelled already."""
        self._stop = stop
        if self.cancelled:
            stop()

    def cancel(self) -> None:
        """Request cancellation. The engine may stop later or not at all."""
        self.cancelled = True
        if self._stop is not None:
            self._stop()


class Engine(Protocol):
    """A loaded model. `infer` blocks, and several threads may call it at once."""

    @property
    def signature(self) -> Signature:
        """The model's tensors."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether the time of an inference depends only on the size of its input: the model has no loops of its own.

        A short inference then stays short for inputs of that size.
        """
        ...

    @property
    def is_async(self) -> bool:
        """Whether inferences run concurrently on an event loop of the engine, so that calling threads mostly wait.

        More inferences at once than there are cores then increase the throughput.
        """
        ...

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Return the named outputs, in order. Raises InputRefused, InferenceFailed, Cancelled."""
        ...

    def close(self) -> None:
        """Release the model; no call follows."""
        ...


class BaseEngine:
    """The properties of an `Engine`, for engines to inherit. See there for `bounded` and `is_async`."""

    def __init__(self, signature: Signature, bounded: bool = False, is_async: bool = False) -> None:
        self._signature = signature
        self._bounded = bounded
        self._is_async = is_async

    @property
    def signature(self) -> Signature:
        """The model's tensors."""
        return self._signature

    @property
    def bounded(self) -> bool:
        """Whether the model is known to only compute, in the calling thread."""
        return self._bounded

    @property
    def is_async(self) -> bool:
        """Whether the model is known to run on an event loop of its own, not in the calling thread."""
        return self._is_async
