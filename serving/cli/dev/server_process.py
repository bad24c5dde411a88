"""Start, direct and end one server process of `knodel dev`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from clusters.net.sockets import BACKLOG, listen_environment
from serving.cli.dev.messages import LINE_LIMIT, Failure, Load, Prepare, Report, Waiting, decode_report, encode

HOST: Final = "127.0.0.1"
LAST_WORDS: Final = 0.1  # s for the report of a process that has ended
_MODULE: Final = "serving.cli.dev.server_main"
_STATM_RESIDENT: Final = 1  # field of /proc/PID/statm, in pages


class ServerProcess:
    """A server that listens on a port of its own on loopback, and leads a process group of its own.

    It ends when this process ends, because it holds the other end of a pipe (`server_main`).
    """

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        lifeline: int, address: tuple[str, int],
    ) -> None:  # fmt: skip
        self._process = process
        self._reader = reader
        self._writer = writer
        self._lifeline = lifeline
        self.address = address

    @classmethod
    async def start(cls, model_format: str, uri: str, modules: list[str], environ: Mapping[str, str]) -> Self:
        """Start a process that imports the engine of a format, or of the files at `uri`, and these modules.

        It then waits for `load`. Raises OSError.
        """
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        listener = socket.create_server((HOST, 0), backlog=BACKLOG)
        address = listener.getsockname()[:2]
        files = (theirs.fileno(), read_end, listener.fileno())
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=LINE_LIMIT)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", _MODULE, str(files[0]), str(files[1]), model_format, uri,
                stdin=asyncio.subprocess.DEVNULL, pass_fds=files, start_new_session=True,
                env={
                    **environ, **listen_environment([listener.fileno()]),
                    "HOST": HOST, "PORT": str(address[1]), "MANAGEMENT_PORT": "0",
                },
            )  # fmt: skip
        except BaseException:
            writer.close()
            os.close(write_end)
            raise
        finally:
            theirs.close()
            os.close(read_end)
            listener.close()
        writer.write(encode(Prepare(modules)))
        return cls(process, reader, writer, write_end, address)

    @property
    def pid(self) -> int:
        """The id of the process, which is also that of its group."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.returncode is not None

    async def load(self, message: Load, within: float) -> Report | None:
        """Let the server load a model, and return its report; None when it ends without one.

        Raises TimeoutError when its imports, or then the load, take longer than `within` seconds.
        """
        async with asyncio.timeout(within):
            waiting = await self._receive()
        if not isinstance(waiting, Waiting):
            return waiting
        self._writer.write(encode(message))
        async with asyncio.timeout(within):
            return await self._receive()

    async def _receive(self) -> Report | None:
        """Return the next report; None when the process has ended."""
        # A process that the model has started may keep the channel open after the end of the server.
        line, ended = asyncio.create_task(self._reader.readline()), asyncio.create_task(self.wait())
        try:
            await asyncio.wait((line, ended), return_when=asyncio.FIRST_COMPLETED)
            if not line.done():
                await asyncio.wait((line,), timeout=LAST_WORDS)
            return decode_report(line.result()) if line.done() and line.result() else None
        except ConnectionError:
            return None
        except (ValueError, msgspec.MsgspecError) as error:
            return Failure(f"its process sent an invalid report: {error}")
        finally:
            line.cancel()
            ended.cancel()

    async def wait(self) -> str:
        """Return how the process ended, as in `with exit code 3` or `by SIGKILL`."""
        code = await self._process.wait()
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

    def resident_bytes(self) -> int:
        """Return the main memory of the process in bytes; 0 where it is unknown (macOS, or after its end)."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[_STATM_RESIDENT]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0

    async def stop(self, within: float) -> None:
        """Let the server end by itself, and kill its group after `within` seconds."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._process.wait()
        await self.kill()

    async def kill(self) -> None:
        """Kill the process and all of its group, and release its resources."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()
        self._writer.close()
        with contextlib.suppress(OSError):
            os.close(self._lifeline)
            self._lifeline = -1
