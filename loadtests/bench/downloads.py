"""Benchmark of downloads: several files at once over kept connections, and one file at a time.

    python -m loadtests.bench.downloads     serve the folders, print the port, and exit when standard input ends

The server adds LATENCY to each connection and to each request, like a network. Its folders are listed like a repository
of the Hugging Face Hub. Below `/close` it closes each connection after one response; with one file at a time, this is a
download without kept connections.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from loadtests.bench.figure import Figure
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.transfer.limits import TransferLimits

HOST: Final = "127.0.0.1"
LATENCY: Final = 0.002  # s
KIBIBYTE: Final = 1024
FOLDERS: Final[Mapping[str, tuple[int, int]]] = {"small": (200, 4 * KIBIBYTE), "large": (4, 64 * KIBIBYTE * KIBIBYTE)}
"""Folders by name: the number of files, and the bytes of each."""
CLOSE: Final = "/close"
ROUNDS: Final = 5
COMMIT: Final = "0" * 40
CONTENTS: Final = {name: memoryview(bytes(size)) for name, (_, size) in FOLDERS.items()}
LISTINGS: Final = {
    name: json.dumps(
        {"sha": COMMIT, "siblings": [{"rfilename": f"part-{number:03}", "size": size} for number in range(count)]}
    ).encode()
    for name, (count, size) in FOLDERS.items()
}


def downloads(folder: Path) -> Iterator[Figure]:
    """Measure both folders, each in turn with and without several files at once."""
    with _serving() as port:
        for name, least in (("small", 5.0), ("large", 0.95)):
            count, size = FOLDERS[name]
            several, single = _seconds(folder, port, name)
            files = f"{count} files of {size // KIBIBYTE} KiB" if name == "small" else f"{count} files of 64 MiB"
            yield Figure(f"{files} over HTTP, p50 of {ROUNDS}", several * 1000, "ms")
            yield Figure("  one file at a time, a connection each", single * 1000, "ms")
            yield Figure("  speedup", single / several, "×", least, least=True)


def _seconds(folder: Path, port: int, name: str) -> tuple[float, float]:
    """Return the median seconds with several files at once, and with one."""
    ways = [("", TransferLimits()), (CLOSE, TransferLimits(files_at_once=1))]
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for (path, limits), seconds in zip(ways, took, strict=True):
            options = StorageOptions({"HF_ENDPOINT": f"http://{HOST}:{port}{path}"}, limits=limits)
            began = time.perf_counter()
            artifact = fetch(f"hf://bench/{name}", "", folder / "cache", frozenset({HOST}), options=options)
            seconds.append(time.perf_counter() - began)
            if len(artifact.names()) != FOLDERS[name][0]:
                raise SystemExit(f"the folder {name} has {len(artifact.names())} files")
            del artifact
            shutil.rmtree(folder / "cache")
    several, single = (statistics.median(seconds) for seconds in took)
    return several, single


@contextmanager
def _serving() -> Iterator[int]:
    """Run the server in a process of its own; yield its port."""
    argv = [sys.executable, "-m", "loadtests.bench.downloads"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline() if process.stdout else ""
            if not port:
                raise SystemExit("the download server did not start")
            yield int(port)
        finally:
            process.kill()


async def _respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    await asyncio.sleep(LATENCY)
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(LATENCY)
            path = head.split(b" ", 2)[1].decode()
            parts = path.removeprefix(CLOSE).split("/")
            ends = "Connection: close\r\n" if path.startswith(CLOSE) else ""
            body = LISTINGS[parts[4]] if parts[1] == "api" else CONTENTS[parts[2]]
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{ends}\r\n".encode() + body[:KIBIBYTE])
            writer.write(body[KIBIBYTE:])
            await writer.drain()
            if ends:
                return
    except (asyncio.IncompleteReadError, ConnectionError):  # the client closed the connection
        return
    finally:
        writer.close()


async def main() -> None:
    """Serve until standard input ends."""
    server = await asyncio.start_server(_respond, HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
