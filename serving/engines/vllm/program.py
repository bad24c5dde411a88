"""vLLM's server as the program of an engine: its command line, environment, metrics and sleep."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import InferenceFailed
from serving.engines.upstream.program import Command, EngineDead, EngineLoad, Get, PageRefused
from serving.engines.vllm.arguments import EngineArguments
from serving.engines.vllm.folder import RANKS
from serving.engines.vllm.metrics import read_concurrency, read_load

GUARD: Final = "serving.engines.upstream.guard"
MOST_SLOTS: Final = 256
"""Requests at once, if the Model sets no number."""
MOST_ACTIVE_ADAPTERS: Final = 8
"""Adapters of the requests of one step. Each takes memory of the GPU; requests for others wait."""
_HEALTH: Final = "/health"
_METRICS: Final = "/metrics"
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "0",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
"""No usage statistics, no downloads, no adapters that callers load."""
_CACHES: Final = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT", "XDG_CACHE_HOME")
"""Folders for compiled code. Their defaults are below the home folder, which a container may not have."""


def _caches(folder: Path) -> Mapping[str, str]:
    """Return the variables of the folders for compiled code that the image does not set."""
    return {name: str(folder / "cache") for name in _CACHES if name not in os.environ}


class _State(msgspec.Struct):
    status: str = ""


_STATE: Final = msgspec.json.Decoder(_State)


class VllmProgram:
    """`vllm serve` on the files in `folder`. `rank` is the largest of the adapters. `held` is kept until `close`."""

    platform = "huggingface_vllm"
    restarts = False  # a device that failed once fails again; the replica starts anew, perhaps elsewhere
    refusals = ()
    paths = frozenset(
        {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"}
    )

    def __init__(
        self, executable: str, folder: Path, options: EngineOptions, arguments: EngineArguments, rank: int, held: object
    ) -> None:
        self._executable = executable
        self._folder = folder
        self._options = options
        self._arguments = arguments
        self._rank = rank
        self._held = held
        self.adapters = tuple(adapter.name for adapter in options.llm.adapters)

    @property
    def rest_after(self) -> float:
        """Seconds without a request after which the engine sleeps; 0: never."""
        return self._arguments.sleep_after

    def command(self, socket: Path, key: str) -> Command:
        """Return how to start vLLM behind the guard, since it does not end with its standard input."""
        argv = [*self._serve(), *self._server_arguments(socket), *self._model_arguments(), *self._adapter_modules()]
        sleeps = {"VLLM_SERVER_DEV_MODE": "1" if self.rest_after else "0"}  # the routes of sleep are development's
        environ = {**_caches(socket.parent), **_ENVIRONMENT, **sleeps, "VLLM_API_KEY": key}
        return Command([*argv, *self._group_arguments(), *self._arguments.argv], environ)

    def worker_command(self) -> Command:
        """Return how to start a worker, which has no HTTP server and takes its work from the leader.

        The held files of the model must outlive the process.
        """
        argv = [*self._serve(), "--headless", *self._model_arguments(), *self._group_arguments(), *self._arguments.argv]
        return Command(argv, {**_caches(Path(tempfile.gettempdir())), **_ENVIRONMENT})

    def slots(self, get: Get, wanted: int) -> int:
        """Return the wanted number, or as many as the KV cache holds requests of the maximum length."""
        return wanted or max(1, min(read_concurrency(self._page(get)) or MOST_SLOTS, MOST_SLOTS))

    def load(self, get: Get) -> EngineLoad:
        """Read the page of metrics, and whether the core lives, which the server outlives by seconds.

        Raises EngineDead, EngineError.
        """
        try:
            get(_HEALTH)
        except PageRefused as error:
            raise EngineDead(f"the core of vLLM has ended ({error})") from error
        return read_load(self._page(get))

    def change_body(self, body: dict[str, Any], adapter: str) -> dict[str, Any] | None:
        """Send every request unchanged: vLLM knows its adapters as NAME:ADAPTER."""
        return None

    def rest(self, get: Get) -> None:
        """Move the weights to the memory of the CPU and drop the KV cache. Raises EngineError."""
        get("/sleep?level=1", "POST")

    def wake(self, get: Get) -> None:
        """Move the weights back. Raises EngineError."""
        try:
            status = _STATE.decode(get("/wake_up", "POST")).status
        except msgspec.MsgspecError as error:
            raise InferenceFailed(f"the answer of vLLM to /wake_up is unexpected: {error}") from error
        if status != "awake":
            raise InferenceFailed(f"vLLM is {status[:40] or 'not awake'} after /wake_up")

    def close(self) -> None:
        """Release the files of the model."""
        self._held = None

    def _serve(self) -> Sequence[str]:
        return [sys.executable, "-P", "-m", GUARD, self._executable, "serve", str(self._folder)]

    def _group_arguments(self) -> Sequence[str]:
        """Return the place of this process in its group. The leader has rank 0, since it has the HTTP server."""
        group = self._options.group
        if group.nodes == 1:
            return []
        return [f"--nnodes={group.nodes}", f"--node-rank={group.rank}", f"--master-addr={group.leader}"]

    def _server_arguments(self, socket: Path) -> Sequence[str]:
        return [
            "--uds", str(socket), "--served-model-name", self._options.name,
            "--disable-fastapi-docs", "--disable-uvicorn-access-log",
        ]  # fmt: skip

    def _model_arguments(self) -> Sequence[str]:
        llm = self._options.llm
        argv = [
            "--load-format=safetensors",
            f"--max-num-seqs={self._options.slots or MOST_SLOTS}",
            f"--max-model-len={llm.context_length or 'auto'}",
        ]
        if llm.tool_parser:
            argv += ["--enable-auto-tool-choice", f"--tool-call-parser={llm.tool_parser}"]
        if self.rest_after:
            argv.append("--enable-sleep-mode")
        return [*argv, *self._adapter_arguments()]

    def _adapter_arguments(self) -> Sequence[str]:
        adapters = self._options.llm.adapters
        if not adapters:
            return []
        largest = next(rank for rank in RANKS if rank >= self._rank)
        active = min(len(adapters), MOST_ACTIVE_ADAPTERS)
        return [
            "--enable-lora", f"--max-lora-rank={largest}", f"--max-loras={active}",
            f"--max-cpu-loras={len(adapters)}",
        ]  # fmt: skip

    def _adapter_modules(self) -> Sequence[str]:
        adapters = self._options.llm.adapters
        modules = [json.dumps({"name": f"{self._options.name}:{one.name}", "path": one.path}) for one in adapters]
        return ["--lora-modules", *modules] if modules else []

    @staticmethod
    def _page(get: Get) -> str:
        return get(_METRICS).decode("utf-8", "replace")
