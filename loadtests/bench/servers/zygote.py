"""The zygote of the embedded cluster without the cluster, to measure starts with all modules imported."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from clusters.embedded.kubelet.process.zygote import SINGLE_THREADED
from clusters.embedded.kubelet.process.zygote_child import SpawnRequest
from loadtests.bench.servers.load import Load
from loadtests.bench.servers.server import LOOK, PATIENCE, ask

OK = 200
ENTRY = "serving.modelserver.main:main"


class Zygote:
    """A running zygote, pinned with its children to one core."""

    def __init__(self, folder: Path, modules: Sequence[str], core: int) -> None:
        self._folder = folder
        self._path = folder / "zygote.socket"
        words = [word for module in modules for word in ("--module", module)]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, (folder / "zygote.log").open("wb") as log:
            listener.bind(str(self._path))
            listener.listen()
            program = [sys.executable, "-m", "clusters.embedded.kubelet.process.zygote", "--socket", str(self._path)]
            self._process = subprocess.Popen(
                ["taskset", "--cpu-list", str(core), *program, "--fd", str(listener.fileno()), *words],
                env=os.environ | SINGLE_THREADED, stdout=log, stderr=log, pass_fds=[listener.fileno()],
            )  # fmt: skip
        self._ask({"op": "hello"})  # the response comes after all imports

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._path.unlink(missing_ok=True)
        self._process.terminate()
        self._process.wait()

    def first_answer(self, arguments: Sequence[str], environment: Mapping[str, str], port: int, load: Load) -> float:
        """Fork a server; return the seconds until its first 200, and stop it. Raises SystemExit."""
        log, record = self._folder / "forked.log", self._folder / "forked.json"
        env = {"PATH": os.environ["PATH"], **SINGLE_THREADED, **environment}
        spawn = SpawnRequest(ENTRY, tuple(arguments), env, str(self._folder), str(log), {}, str(record), {})
        began = time.perf_counter()
        answer = self._ask(spawn.to_json())
        if "error" in answer:
            raise SystemExit(f"the zygote could not start a server: {answer['error']}")
        try:
            while ask(port, load)[0] != OK:
                if time.perf_counter() - began > PATIENCE:
                    raise SystemExit(f"a forked server gave no 200: {log.read_text(errors='replace')[-2000:]}")
                time.sleep(LOOK)
            return time.perf_counter() - began
        finally:
            os.kill(int(answer["pid"]), signal.SIGKILL)

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(PATIENCE)
            client.connect(str(self._path))
            client.sendall(json.dumps(message).encode() + b"\n")
            with client.makefile("rb") as lines:
                found: dict[str, Any] = json.loads(lines.readline())
        return found
