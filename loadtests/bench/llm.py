"""Benchmark of language models: our model server beside llama.cpp's own server, by turns, with SmolLM2-135M.

Both run the same program with the same settings. What differs is the server in front of one of them. The proxy of
`byte_proxy`, in front of llama.cpp's own server, shows the CPU time that any server in front of it takes.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from clusters.net.upstream import UpstreamConnection
from examples.quickstart_llm import model_file
from loadtests.bench.figure import Figure
from loadtests.bench.processes import cpu_seconds
from serving.engines.gguf.program import KEY, LlamaSettings
from tests.support.ports import free_port

STREAMS, TOKENS, ROUNDS = 8, 64, 7
FIRSTS = 60  # requests to either, one after the other, for the time to the first token
CONTEXT = 512
SECRET = "bench"  # noqa: S105 - of a process on this machine, for the time of the benchmark
CHAT = "/v1/chat/completions"
MESSAGES: Final = [{"role": "user", "content": "Write a long story about the sea, the wind and an old ship."}]
READY = 60.0  # s

Connect = Callable[[], Any]
"""Returns a coroutine of a connection to a server."""


@dataclass(frozen=True)
class Server:
    """A server and how to connect to it."""

    pid: int
    connect: Connect


def llm() -> Iterator[Figure]:
    """Yield the figures."""
    with tempfile.TemporaryDirectory(prefix="knodel-llm-") as folder:
        yield from asyncio.run(_measured(Path(folder)))


async def _measured(folder: Path) -> list[Figure]:
    socket = folder / "llama.sock"
    async with _llama(socket) as peer, _proxy(socket) as proxy, _ours() as ours:
        rates: dict[Server, list[float]] = {peer: [], proxy: [], ours: []}
        firsts: dict[Server, list[float]] = {peer: [], ours: []}
        busy = dict.fromkeys(rates, 0.0)
        for server in rates:
            await _streams(server)
        for _ in range(ROUNDS):
            for server in rates:
                before, began = cpu_seconds(server.pid), time.perf_counter()
                await _streams(server)
                rates[server].append(STREAMS * TOKENS / (time.perf_counter() - began))
                busy[server] += cpu_seconds(server.pid) - before
        for _ in range(FIRSTS):
            for server in firsts:
                firsts[server].append(await _first_token(server))
    lost = statistics.median(1 - mine / other for mine, other in zip(rates[ours], rates[peer], strict=True)) * 100
    added = statistics.median(a - b for a, b in zip(firsts[ours], firsts[peer], strict=True)) * 1000
    return [
        Figure(f"llama.cpp's own server, {STREAMS} streams", statistics.median(rates[peer]), "tok/s"),
        Figure(f"through our server, {STREAMS} streams", statistics.median(rates[ours]), "tok/s"),
        Figure(f"  tokens/s lost, median of {ROUNDS} pairs", lost, "%", 5),
        Figure(f"time to first token added, median of {FIRSTS} pairs", added, "ms", 2),
        Figure("CPU time of our server per token", busy[ours] / (ROUNDS * STREAMS * TOKENS) * 1e6, "µs", 80),
        Figure(
            "CPU time of a proxy that copies bytes, per token", busy[proxy] / (ROUNDS * STREAMS * TOKENS) * 1e6, "µs"
        ),
    ]


async def _streams(server: Server) -> None:
    await asyncio.gather(*(_answer(server, TOKENS) for _ in range(STREAMS)))


async def _first_token(server: Server) -> float:
    began = time.perf_counter()
    return await _answer(server, 2) - began


async def _answer(server: Server, tokens: int) -> float:
    """Read one streamed answer of exactly so many tokens, and return when its first token came."""
    asked = {
        "model": "m", "messages": MESSAGES, "stream": True, "max_tokens": tokens, "ignore_eos": True, "temperature": 0,
    }  # fmt: skip
    body = json.dumps(asked).encode()
    connection: UpstreamConnection = await server.connect()
    try:
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {SECRET}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.send(head.encode() + body, head_only=False)
        status, _ = await connection.response()
        first, content = 0.0, b""
        while data := await connection.read():
            content += data
            if not first and b'"content":"' in content:
                first = time.perf_counter()
        if status != 200 or b"[DONE]" not in content:
            raise SystemExit(f"llm: status {status}: {content[:200]!r}")
        return first
    finally:
        connection.close()


@asynccontextmanager
async def _llama(socket: Path) -> AsyncIterator[Server]:
    """Run llama.cpp's server by itself."""
    settings = LlamaSettings(
        model=model_file(), socket=str(socket), name="m", slots=STREAMS, context=CONTEXT, batch=512, threads=1,
        prompt_cache_mib=256, embeddings=False, mean=False, most_text=0, adapters=(), options={},
    )  # fmt: skip
    argv = [sys.executable, "-m", "serving.engines.gguf.main", msgspec.json.encode(settings).decode()]

    async def connect() -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        return (await loop.create_unix_connection(UpstreamConnection, str(socket)))[1]

    async with _process(argv, {KEY: SECRET}, connect) as server:
        yield server


@asynccontextmanager
async def _proxy(socket: Path) -> AsyncIterator[Server]:
    """Run a proxy that copies bytes, in front of llama.cpp's own server."""
    port = free_port()
    argv = [sys.executable, "-m", "loadtests.bench.byte_proxy", str(port), str(socket)]
    async with _process(argv, {}, partial(_connect, port)) as server:
        yield server


@asynccontextmanager
async def _ours() -> AsyncIterator[Server]:
    """Run our model server."""
    port = free_port()
    argv = [
        sys.executable, "-m", "serving.modelserver", "--name", "m", "--storage-uri", Path(model_file()).as_uri(),
        "--slots", str(STREAMS), "--context-length", str(CONTEXT), "--cpu", "1",
    ]  # fmt: skip
    environ = {"PORT": str(port), "MANAGEMENT_PORT": str(free_port())}
    async with _process(argv, environ, partial(_connect, port)) as server:
        yield server


async def _connect(port: int) -> UpstreamConnection:
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(UpstreamConnection, "127.0.0.1", port))[1]


@asynccontextmanager
async def _process(argv: list[str], environ: dict[str, str], connect: Connect) -> AsyncIterator[Server]:
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs on the loop yet
        argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **environ}, start_new_session=True
    ) as process:
        try:
            server = Server(process.pid, connect)
            await _wait(server)
            yield server
        finally:
            process.kill()


async def _wait(server: Server) -> None:
    """Return once the server answers. Raises SystemExit."""
    until = time.monotonic() + READY
    while time.monotonic() < until:
        try:
            await _answer(server, 1)
        except (OSError, SystemExit):
            await asyncio.sleep(0.2)
        else:
            return
    raise SystemExit("llm: a server did not start")
