"""vLLM's server as the program of an engine: its command line, environment, metrics and sleep."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from clusters.base.redact import one_line
from serving.engines.base.engine import Adapter, EngineOptions
from serving.engines.base.errors import InferenceFailed, LoadFailed
from serving.engines.upstream.process import GUARDED
from serving.engines.upstream.program import Command, EngineDead, EngineLoad, Get, PageRefused
from serving.engines.vllm.arguments import LORA_RANK, RANKS, EngineArguments
from serving.engines.vllm.folder import vet_adapter
from serving.engines.vllm.metrics import read_concurrency, read_load

MOST_SLOTS: Final = 256
"""Requests at once, if the Model sets no number."""
MOST_ACTIVE_ADAPTERS: Final = 8
"""Adapters of the requests of one step. Each takes memory of the GPU; requests for others wait."""
LEAST_ACTIVE, LEAST_RANK = 4, 16
"""Adapters of one step and their rank for which an engine that loads adapters later has room at least."""
MOST_HELD: Final = 64
"""Adapters in the memory of the CPU: all that a Model may have, and their successors while both are in use.

An adapter that vLLM drops from there cannot be unloaded.
"""
_LOAD, _UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
_HEALTH: Final = "/health"
_METRICS: Final = "/metrics"
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "0",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
"""No usage statistics, no downloads."""
_CACHES: Final = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT", "XDG_CACHE_HOME")
"""Folders for compiled code. Their defaults are below the home folder, which a container may not have."""


def _caches(folder: Path) -> Mapping[str, str]:
    """Return the variables of the folders for compiled code that the image does not set."""
    return {name: str(folder / "cache") for name in _CACHES if name not in os.environ}


class _State(msgspec.Struct):
    status: str = ""


class _Fault(msgspec.Struct):
    message: str = ""


class _Refusal(msgspec.Struct):
    error: _Fault


_STATE: Final = msgspec.json.Decoder(_State)
_REFUSAL: Final = msgspec.json.Decoder(_Refusal)


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
        least = LEAST_RANK if options.llm.dynamic else arguments.lora_rank
        fixed = arguments.lora_rank if options.llm.dynamic else 0
        self._rank = fixed or next(one for one in RANKS if one >= max(least, rank))
        self._held = held
        self.adapters = () if options.llm.dynamic else tuple(adapter.name for adapter in options.llm.adapters)

    @property
    def rest_after(self) -> float:
        """Seconds without a request after which the engine sleeps; 0: never."""
        return self._arguments.sleep_after

    def command(self, socket: Path, key: str) -> Command:
        """Return how to start vLLM behind the guard, since it does not end with its standard input."""
        argv = [*self._serve(), *self._server_arguments(socket), *self._model_arguments(), *self._adapter_modules()]
        sleeps = {"VLLM_SERVER_DEV_MODE": "1" if self.rest_after else "0"}  # the routes of sleep are development's
        changes = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1" if self._options.llm.dynamic else "0"}  # callers never can
        environ = {**_caches(socket.parent), **_ENVIRONMENT, **sleeps, **changes, "VLLM_API_KEY": key}
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

    def load_adapter(self, get: Get, adapter: Adapter, model: str) -> None:
        """Load an adapter as `model`. Raises LoadFailed if the adapter is at fault, StorageError, EngineError.

        vLLM's prefix cache knows an adapter only by its name. So other files need another name.
        """
        rank = vet_adapter(adapter)
        if rank > self._rank:
            remedy = "" if self._arguments.lora_rank else f"`knodel restart {self._options.name}`, or "
            raise LoadFailed(
                f"its rank is {rank}, and this replica was started for ranks up to {self._rank}: "
                f"{remedy}set {LORA_RANK} of engineArgs"
            )
        body = json.dumps({"lora_name": model, "lora_path": adapter.path}).encode()
        try:
            get(_LOAD, "POST", body)
        except PageRefused as error:
            raise LoadFailed(f"vLLM refuses the adapter: {_reason(error)}") from error

    def unload_adapter(self, get: Get, model: str) -> None:
        """Unload the adapter that was loaded as `model`. Raises EngineError."""
        try:
            get(_UNLOAD, "POST", json.dumps({"lora_name": model}).encode())
        except PageRefused as error:
            raise InferenceFailed(f"vLLM does not unload the adapter {model}: {_reason(error)}") from error

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
        return [*GUARDED, self._executable, "serve", str(self._folder)]

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
        adapters, dynamic = self._options.llm.adapters, self._options.llm.dynamic
        if not adapters and not dynamic:
            return []
        least = LEAST_ACTIVE if dynamic else 1
        active = self._arguments.loras or max(least, min(len(adapters), MOST_ACTIVE_ADAPTERS))
        held = MOST_HELD if dynamic else max(active, len(adapters))
        return [
            "--enable-lora", f"--max-lora-rank={self._rank}", f"--max-loras={active}", f"--max-cpu-loras={held}"
        ]  # fmt: skip

    def _adapter_modules(self) -> Sequence[str]:
        """Return the adapters of the start. Others are loaded one by one, so that a bad one harms no other."""
        adapters = () if self._options.llm.dynamic else self._options.llm.adapters
        modules = [json.dumps({"name": f"{self._options.name}:{one.name}", "path": one.path}) for one in adapters]
        return ["--lora-modules", *modules] if modules else []

    @staticmethod
    def _page(get: Get) -> str:
        return get(_METRICS).decode("utf-8", "replace")


def _reason(refusal: PageRefused) -> str:
    """Return the message in a refusal of vLLM."""
    try:
        return one_line(_REFUSAL.decode(refusal.body).error.message, 300) or str(refusal)
    except msgspec.MsgspecError:
        return str(refusal)
