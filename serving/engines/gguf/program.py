"""llama.cpp's server as an `EngineProgram`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import ModelFolder
from serving.engines.upstream.program import Command, EngineLoad, Get

MODULE: Final = "serving.engines.gguf.main"
KEY: Final = "KNODEL_ENGINE_KEY"
"""Variable with the key; the process removes it before it loads anything."""
CHAT: Final = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
    }
)
EMBEDDINGS: Final = frozenset({"/v1/embeddings"})
RERANK: Final = frozenset({"/v1/rerank"})


class LlamaSettings(msgspec.Struct, frozen=True):
    """What the process is started with. Sizes are in tokens, bytes and MiB where the name says so.

    `adapters` are the files of LoRA adapters, in the order of their ids. `options` are llama.cpp's names and values.
    """

    model: str
    socket: str
    name: str
    slots: int
    context: int
    threads: int
    prompt_cache_mib: int
    embeddings: bool
    adapters: tuple[str, ...]
    options: dict[str, Any]


class GgufProgram:
    """Serves the file `settings.model`; `folder` has the files of the model and is closed at the end."""

    platform = "gguf_llamacpp"
    restarts = True
    refusals = (
        "Failed to parse messages: ", "Failed to parse tools: ", "Unknown reasoning format: ",
        " input is not supported",
    )  # fmt: skip
    probe = "/metrics"  # answered by the thread that computes, which also compiles the grammars of callers

    def __init__(
        self, settings: LlamaSettings, adapters: tuple[str, ...], folder: ModelFolder, *, reranks: bool = False
    ) -> None:
        self.adapters = adapters
        self._settings = settings
        self._folder = folder
        self.paths = CHAT | (EMBEDDINGS if settings.embeddings else frozenset()) | (RERANK if reranks else frozenset())

    def command(self, socket: Path, key: str) -> Command:
        """Start our own process, which runs llama.cpp's server as a library."""
        settings = msgspec.structs.replace(self._settings, socket=str(socket))
        encoded = msgspec.json.encode(settings).decode()
        return Command([sys.executable, "-P", "-m", MODULE, encoded], {KEY: key})

    def slots(self, get: Get, wanted: int) -> int:
        """Return the number of slots that the process was started with."""
        return self._settings.slots

    def load(self, get: Get) -> EngineLoad:
        """Return an empty load: nothing waits inside, because the server sends no more requests than there are slots.

        Only the health is read. Any other page would keep an idle engine awake.
        """
        get("/health")
        return EngineLoad()

    def change_body(self, body: dict[str, Any], adapter: str) -> dict[str, Any] | None:
        """Ask for the adapter by its id, and for none of the others.

        llama.cpp reuses the cache of a prompt across adapters (ggml-org/llama.cpp#26207), so the cache is not used.
        """
        if not self.adapters:
            return None
        wanted = [{"id": number, "scale": float(name == adapter)} for number, name in enumerate(self.adapters)]
        return {**body, "lora": wanted, "cache_prompt": False}

    def wake(self, get: Get) -> None:
        """Do nothing: a sleeping llama.cpp wakes by itself when a request comes."""

    def close(self) -> None:
        """Release the files."""
        self._folder.close()


def _positive(value: str, most: float) -> float:
    number = float(value)
    if not 0 < number <= most:
        raise ValueError(value)
    return number


OPTIONS: Final[Mapping[str, tuple[str, float, bool]]] = {
    "sleep-idle-seconds": ("sleep_idle_seconds", 86_400 * 7, True),
    "batch-size": ("n_batch", 1 << 16, True),
    "ubatch-size": ("n_ubatch", 1 << 16, True),
    "rope-freq-base": ("rope_freq_base", 1e9, False),
    "rope-freq-scale": ("rope_freq_scale", 1e3, False),
    "gpu-layers": ("n_gpu_layers", 1 << 16, True),
}
"""Options by name: llama.cpp's attribute, the largest value, and whether it is a whole number."""


def options_of(given: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return llama.cpp's attributes for `llm.engineArgs`. Raises LoadFailed for an unknown name or a bad value."""
    found: dict[str, Any] = {}
    for name, value in given:
        if name not in OPTIONS:
            raise LoadFailed(f"llm.engineArgs has {name!r}, which gguf does not take: use {', '.join(OPTIONS)}")
        attribute, most, whole = OPTIONS[name]
        try:
            number = _positive(value, most)
            found[attribute] = int(value) if whole else number
        except ValueError as error:
            kind = "a whole number" if whole else "a number"
            raise LoadFailed(f"llm.engineArgs.{name} is {value!r}: set {kind} up to {most:g}") from error
    return found
