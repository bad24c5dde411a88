"""The process of llama.cpp's server.

python -P -m serving.engines.gguf.main SETTINGS, with the key in a variable. It ends with its standard input.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import msgspec

from clusters.base.process_setup import end_with_pipe
from serving.engines.gguf.program import KEY, LlamaSettings

NEVER = -1
SLEEP_AFTER = 300  # s without a request after which llama.cpp frees the model; the file stays in the page cache
CHECKPOINTS = 4  # of a slot's state, for models with sliding windows; 32 by default, of up to hundreds of MiB each
LOG_WAIT = 0.5  # s for the thread that writes llama.cpp's log, which ends with the process
HTTP_THREADS = 4  # beyond one for each slot, for health and for callers that leave


def main(encoded: str) -> None:
    """Serve until the standard input ends."""
    end_with_pipe(sys.stdin.fileno(), group=True)
    settings = msgspec.json.decode(encoded, type=LlamaSettings)
    key = os.environ.pop(KEY)
    import xllamacpp

    given = xllamacpp.CommonParams()
    given.model.path = settings.model
    given.model_alias = {settings.name}
    given.hostnames = [settings.socket]
    given.api_keys = [key]
    given.n_parallel = settings.slots
    given.n_ctx = settings.context * settings.slots
    given.fit_params = False  # the memory was checked before
    for cpu in (given.cpuparams, given.cpuparams_batch):
        cpu.n_threads = settings.threads  # llama.cpp spins: with more threads than cores it is several times slower
    given.n_threads_http = settings.slots + HTTP_THREADS
    given.cache_ram_mib = settings.prompt_cache_mib  # 8 GiB by default
    given.sleep_idle_seconds = SLEEP_AFTER
    given.n_ubatch, given.n_ctx_checkpoints = settings.batch, CHECKPOINTS
    given.embedding = settings.embeddings
    if settings.embeddings:
        given.kv_unified = True  # else texts of one batch are computed in equal parts, and only the last part is pooled
        given.n_batch = settings.batch  # llama.cpp refuses a longer text, since the whole text must be in one batch
    if settings.embeddings and settings.mean:
        given.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    given.lora_adapters = [_adapter(xllamacpp, path) for path in settings.adapters]
    given.lora_init_without_apply = True  # requests ask for one
    given.endpoint_metrics = True
    given.endpoint_slots = given.endpoint_props = given.ui = given.cors_credentials = False
    given.cors_origins = given.cors_headers = given.cors_methods = ""
    given.verbosity = 1
    for name, value in settings.options.items():
        setattr(given, name, value)
    if not given.sleep_idle_seconds:
        given.sleep_idle_seconds = NEVER
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the model server drains, and needs this process for that
    try:
        server = xllamacpp.Server(given)
    except RuntimeError:  # llama.cpp has written why; a traceback would push that out of the lines that are quoted
        time.sleep(LOG_WAIT)
        sys.exit(1)
    while server is not None:
        signal.pause()


def _adapter(library: Any, path: str) -> Any:
    made = library.CommonAdapterLoraInfo()
    made.path, made.scale = path, 1.0
    return made


if __name__ == "__main__":
    main(sys.argv[1])
