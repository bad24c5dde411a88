"""Load a language model in GGUF."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from serving.engines.base.engine import Adapter, EngineOptions
from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import ModelFolder, only_file
from serving.engines.gguf.file import PART, Head, parts_of, read_head
from serving.engines.gguf.memory import most_batch, plan_memory
from serving.engines.gguf.program import CHAT, EMBEDDINGS, RERANK, UBATCH, GgufProgram, LlamaSettings, options_of
from serving.engines.upstream.engine import UpstreamEngine

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

SUFFIX: Final = ".gguf"
SLOTS: Final = 4
"""Requests at once when the Model sets no containerConcurrency: llama.cpp computes them in one batch."""
FILE: Final = "model.gguf"
PLAIN_TOKENIZERS: Final = ("gpt2", "llama")
"""Tokenizers (tokenizer.ggml.model) of which each token stands for its own text. Others drop white space and words."""

if importlib.util.find_spec("xllamacpp") is None:  # only the process imports it
    raise ModuleNotFoundError("No module named 'xllamacpp'", name="xllamacpp")


def load(artifact: Artifact, options: EngineOptions) -> UpstreamEngine:
    """Check the file and its memory, and start the engine. Raises LoadFailed, StorageError."""
    folder = ModelFolder(artifact, FILE, in_place=True)
    try:
        program = _make_program(artifact, folder, options)
    except BaseException:
        folder.close()
        raise
    return UpstreamEngine(program, options)


def _make_program(artifact: Artifact, folder: ModelFolder, options: EngineOptions) -> GgufProgram:
    names = [FILE] if artifact.content is not None else artifact.names()
    parts = parts_of(_first_file(artifact, names), names)
    heads = [read_head(folder.path / part, part) for part in parts]
    head = heads[0]
    if not head.architecture:
        raise LoadFailed(f"{parts[0]} names no architecture (general.architecture): it is not a language model")
    if head.text("general.type") in ("adapter", "mmproj", "imatrix"):
        raise LoadFailed(f"{parts[0]} is of the type {head.text('general.type')}: name the file of a model")
    _check_split(heads, parts)
    options_given = options_of(options.llm.engine_args)
    embeddings = options.llm.embeddings or head.encodes or head.reranks
    slots, weights = options.slots or SLOTS, sum(one.tensor_bytes for one in heads)
    batch = most_batch(head, embeddings, int(options_given.pop(UBATCH, 0)))
    plan = plan_memory(head, weights, slots, options.llm.context_length, options.memory, parts[0], batch)
    settings = LlamaSettings(
        model=str(folder.path / parts[0]),
        socket="",
        name=options.name,
        slots=slots,
        context=plan.context,
        batch=plan.batch,
        threads=options.threads,
        prompt_cache_mib=plan.prompt_cache >> 20,
        embeddings=embeddings,
        mean=not head.pools,
        most_text=plan.context * head.longest_token if head.text("tokenizer.ggml.model") in PLAIN_TOKENIZERS else 0,
        adapters=tuple(_adapter_file(adapter, head) for adapter in options.llm.adapters),
        options=options_given,
    )
    names_of_adapters = tuple(adapter.name for adapter in options.llm.adapters)
    return GgufProgram(settings, names_of_adapters, folder, _paths(head, embeddings))


def _paths(head: Head, embeddings: bool) -> frozenset[str]:
    """Return the paths that a model of this kind answers."""
    if head.reranks:
        return RERANK
    return (frozenset() if head.encodes else CHAT) | (EMBEDDINGS if embeddings else frozenset())


def _check_split(heads: list[Head], parts: list[str]) -> None:
    """Check that these are all parts of a split file, in order. Raises LoadFailed."""
    for number, (head, part) in enumerate(zip(heads, parts, strict=True)):
        count, own = head.values.get("split.count", 1), head.values.get("split.no", 0)
        if count in (0, 1) and len(parts) == 1:
            return
        if count != len(parts) or own != number:
            raise LoadFailed(
                f"{part} is part {own} (from 0) of {count}, and part {number} of {len(parts)} is expected here: name a "
                "folder with all parts, under the names that they were split to"
            )


def _first_file(artifact: Artifact, names: list[str]) -> str:
    """Return the only model file, the first part of a split one. Raises LoadFailed."""
    if artifact.content is not None:
        return FILE
    firsts = [name for name in names if (part := PART.search(name)) is not None and int(part[1]) == 1]
    return firsts[0] if len(firsts) == 1 else only_file(artifact, (SUFFIX,))


def _adapter_file(adapter: Adapter, model: Head) -> str:
    """Return the file of a LoRA adapter for this model. Raises LoadFailed."""
    path = Path(adapter.path)
    found = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if len(found) != 1:
        raise LoadFailed(f"the adapter {adapter.name!r} has {len(found)} files {SUFFIX}: name a folder with one")
    head = read_head(found[0], f"the adapter {adapter.name!r}")
    if head.text("general.type") != "adapter" or head.text("adapter.type") != "lora":
        raise LoadFailed(
            f"the adapter {adapter.name!r} is not a LoRA adapter in GGUF: convert it with llama.cpp's script"
        )
    if head.architecture != model.architecture:
        raise LoadFailed(
            f"the adapter {adapter.name!r} is for {head.architecture}, and the model is {model.architecture}"
        )
    return str(found[0])
