"""llama.cpp's server as an `EngineProgram`."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from serving.engines.base.errors import InputRefused, LoadFailed
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


LOOK_BACK: Final = frozenset({"repeat_last_n", "dry_penalty_last_n"})
"""Members of a request: the number of tokens that penalties of repetitions consider."""
NOT_PASSED: Final = frozenset({"id_slot"})
"""Members of a request that llama.cpp is not given: a request for one slot would wait while others are free."""
CONVERSATION: Final = ("messages", "system", "instructions")
"""Members of a request that are one prompt together with all that they contain."""
PROMPTS: Final = ("prompt", "input")
"""Members of a request that are a prompt, or several ones in a list."""
LOG_PROBABILITIES: Final = ("top_logprobs", "logprobs", "n_probs")
"""Members of a request: the number of log probabilities for each token."""
MOST_LOG_PROBABILITIES: Final = 20
"""As with OpenAI. llama.cpp responds with those of the whole vocabulary, 5 MB for each token."""
MOST_BIASES: Final = 1024
"""Entries of `logit_bias`. llama.cpp takes half a millisecond for each, before each answer."""
MOST_PROMPTS: Final = 2048
"""Prompts of one request, as with OpenAI. llama.cpp queues all of them at once."""


class LlamaSettings(msgspec.Struct, frozen=True):
    """Settings of the process. Sizes are in tokens, or in MiB where the name ends with it.

    `batch` is how many tokens are computed at once. `mean` is whether an embedding is the mean of those of its tokens,
    for a model that names no way of its own. `most_text` is how many characters `context` tokens have at most; 0: it is
    not known. `adapters` are the files of LoRA adapters, in the order of their ids. `options` are llama.cpp's names
    and values.
    """

    model: str
    socket: str
    name: str
    slots: int
    context: int
    batch: int
    threads: int
    prompt_cache_mib: int
    embeddings: bool
    mean: bool
    most_text: int
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
        self, settings: LlamaSettings, adapters: tuple[str, ...], folder: ModelFolder, paths: frozenset[str] = CHAT
    ) -> None:
        self.adapters = adapters
        self._settings = settings
        self._folder = folder
        self.paths = paths

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
        """Ask for the adapter by its id, and for none of the others; limit what one request may take.

        llama.cpp reuses the cache of a prompt across adapters (ggml-org/llama.cpp#26207), so the cache is not used.
        It allocates `LOOK_BACK` tokens before it computes: 8 GB for the largest number of 32 bits. It needs minutes for
        the tokens of a word of 10 MB, also when its caller has left.
        Raises InputRefused for a text that cannot fit, and for too many prompts, biases or log probabilities.
        """
        self._check_size(body)
        for name in LOG_PROBABILITIES:
            if isinstance(asked := body.get(name), int | float) and asked > MOST_LOG_PROBABILITIES:
                raise InputRefused(f"{name} is {asked}: ask for at most {MOST_LOG_PROBABILITIES}")
        if isinstance(biases := body.get("logit_bias"), dict | list) and len(biases) > MOST_BIASES:
            raise InputRefused(f"logit_bias has {len(biases)} entries: send at most {MOST_BIASES}")
        if not self.adapters and body.keys().isdisjoint(LOOK_BACK | NOT_PASSED):
            return None
        changed = {name: value for name, value in body.items() if name not in NOT_PASSED}
        for name in LOOK_BACK & body.keys():
            if isinstance(body[name], int | float):  # llama.cpp refuses anything else
                changed[name] = min(body[name], self._settings.context)
        if self.adapters:
            wanted = [{"id": number, "scale": float(name == adapter)} for number, name in enumerate(self.adapters)]
            changed |= {"lora": wanted, "cache_prompt": False}
        return changed

    def _check_size(self, body: Mapping[str, Any]) -> None:
        """Raise InputRefused if a prompt has more text than the tokens of the context, or if there are too many."""
        most = self._settings.most_text
        sizes = [text_size([body.get(name) for name in CONVERSATION], most)]
        for value in (body.get(name) for name in PROMPTS):
            if isinstance(value, list) and value and isinstance(value[0], str | list):
                if len(value) > MOST_PROMPTS:
                    raise InputRefused(f"the request has {len(value)} prompts: send at most {MOST_PROMPTS}")
                sizes.append(max(len(one) for one in value if isinstance(one, str | list)))
            else:
                sizes.append(text_size(value, most))
        if most and max(sizes) > most:
            raise InputRefused(
                f"the prompt is longer than the context: it has more than {most} characters, which is the most that "
                f"{self._settings.context} tokens (llm.contextLength) have"
            )

    def wake(self, get: Get) -> None:
        """Do nothing: a sleeping llama.cpp wakes by itself when a request comes."""

    def close(self) -> None:
        """Release the files."""
        self._folder.close()


def text_size(value: Any, enough: int) -> int:
    """Return the number of characters in all texts of a JSON value and of elements in its lists.

    Counts no further once there are more than `enough`.
    """
    pending, size = [value], 0
    while pending and size <= enough:
        one = pending.pop()
        if isinstance(one, str | list):
            size += len(one)
        if isinstance(one, list) and size <= enough:
            pending += one
        elif isinstance(one, dict):
            pending += one.values()
    return size


class Option(NamedTuple):
    """An option: llama.cpp's attribute, its bounds, and whether it is a whole number."""

    attribute: str
    least: float
    most: float
    whole: bool = True


UBATCH: Final = "n_ubatch"
OPTIONS: Final[Mapping[str, Option]] = {
    "sleep-idle-seconds": Option("sleep_idle_seconds", 0, 86_400 * 7),  # 0: never
    "batch-size": Option("n_batch", 1, 1 << 16),
    "ubatch-size": Option(UBATCH, 1, 1 << 16),
    "ctx-checkpoints": Option("n_ctx_checkpoints", 0, 1024),
    "rope-freq-base": Option("rope_freq_base", 1e-9, 1e9, whole=False),
    "rope-freq-scale": Option("rope_freq_scale", 1e-9, 1e3, whole=False),
    "gpu-layers": Option("n_gpu_layers", 0, 1 << 16),
}


def options_of(given: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return llama.cpp's attributes for `llm.engineArgs`. Raises LoadFailed for an unknown name or a bad value."""
    found: dict[str, Any] = {}
    for name, value in given:
        if name not in OPTIONS:
            raise LoadFailed(f"llm.engineArgs has {name!r}, which gguf does not take: use {', '.join(OPTIONS)}")
        option = OPTIONS[name]
        try:
            number: float = int(value) if option.whole else float(value)
        except ValueError:
            number = math.nan
        if not option.least <= number <= option.most:
            kind = "a whole number" if option.whole else "a number"
            raise LoadFailed(f"llm.engineArgs.{name} is {value!r}: set {kind} of {option.least:g} to {option.most:g}")
        found[option.attribute] = number
    return found
