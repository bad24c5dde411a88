"""Language models in vLLM, a server of its own in the user's image.

vLLM is not among our dependencies. It must be installed beside us: on a platform in the image of a runtime.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from serving.engines.base.engine import EngineOptions, LlmOptions
from serving.engines.base.errors import LoadFailed, MissingEngine
from serving.engines.base.folder import check_digests
from serving.engines.upstream.engine import UpstreamEngine
from serving.engines.upstream.process import EngineProcess
from serving.engines.vllm.arguments import read_arguments
from serving.engines.vllm.folder import vet_adapter, vet_model
from serving.engines.vllm.program import VllmProgram
from serving.storage.base.errors import StorageError

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

PROGRAM: Final = "vllm"
MISSING: Final = (
    "format vllm needs the program vllm, which is not installed here: on a platform set runtimes.vllm.image in its "
    "settings to an image with Knodel and vLLM; on your own server install vLLM, on a machine with a GPU"
)


def load(artifact: Artifact, options: EngineOptions) -> UpstreamEngine:
    """Check the folder and start vLLM on it. Raises LoadFailed, MissingEngine, StorageError."""
    arguments = read_arguments(options.llm.engine_args)
    if options.llm.embeddings:
        raise LoadFailed("vLLM does not compute embeddings with a model that generates text: omit embeddings")
    vet_model(artifact)
    rank = _largest_rank(options.llm)
    executable = find_program()
    check_digests(artifact)
    return UpstreamEngine(VllmProgram(executable, artifact.path, options, arguments, rank, artifact), options)


def _largest_rank(llm: LlmOptions) -> int:
    """Return the largest rank of the adapters, 0 without any. Raises LoadFailed, StorageError.

    Faults of adapters that are loaded later are left to their loading.
    """
    largest = 0
    for adapter in llm.adapters:
        try:
            largest = max(largest, vet_adapter(adapter))
        except (LoadFailed, StorageError):
            if not llm.dynamic:
                raise
    return largest


def start_worker(artifact: Callable[[], Artifact], options: EngineOptions) -> EngineProcess:
    """Start a worker of the leader's vLLM. Raises LoadFailed, MissingEngine, StorageError."""
    arguments = read_arguments(options.llm.engine_args)
    files = artifact()
    vet_model(files)
    rank = _largest_rank(options.llm)
    check_digests(files)
    program = VllmProgram(find_program(), files.path, options, arguments, rank, files)
    return EngineProcess(program.worker_command())


def find_program() -> str:
    """Return the path of the program, beside our Python or in $PATH. Raises MissingEngine."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which(PROGRAM, path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if found is None:
        raise MissingEngine(MISSING)
    return found
