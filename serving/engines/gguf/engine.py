"""Load a language model in GGUF."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from serving.engines.base.engine import Adapter, EngineOptions
from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import ModelFolder, only_file
from serving.engines.gguf.file import PART, Head, parts_of, read_head
from serving.engines.gguf.memory import plan_memory
from serving.engines.gguf.program import GgufProgram, LlamaSettings, options_of
from serving.engines.upstream.engine import UpstreamEngine

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

SUFFIX: Final = ".gguf"
SLOTS: Final = 4
"""Requests at once when the Model sets no containerConcurrency: llama.cpp computes them in one batch."""
RANK: Final = 4  # llama.cpp's pooling type of models that rank documents
FILE: Final = "model.gguf"

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
    slots, weights = options.slots or SLOTS, sum(one.tensor_bytes for one in heads)
    plan = plan_memory(head, weights, slots, options.llm.context_length, options.memory, parts[0])
    settings = LlamaSettings(
        model=str(folder.path / parts[0]),
        socket="",
        name=options.name,
        slots=slots,
        context=plan.context,
        threads=options.threads,
        prompt_cache_mib=plan.prompt_cache >> 20,
        embeddings=options.llm.embeddings,
        adapters=tuple(_adapter_file(adapter, head) for adapter in options.llm.adapters),
        options=options_of(options.llm.engine_args),
    )
    reranks = head.number("pooling_type", -1) == RANK
    return GgufProgram(settings, tuple(adapter.name for adapter in options.llm.adapters), folder, reranks=reranks)


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
