"""Run operations and commands for the dashboard without blocking its event loop."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from serving.client.api import ApiCalls
from serving.client.blocking import BlockingDriver, HttpTransport
from serving.client.effects import Call
from serving.client.server import Server

T = TypeVar("T")

COMMAND_SECONDS: Final = 120.0
MOST_OUTPUT: Final = 4 << 20


async def run_operation(connect: Callable[[], Server], operation: Callable[[ApiCalls], Call[T]], timeout: float) -> T:
    """Return the result of an operation of the client, in a thread. Raises its errors."""

    def run() -> T:
        return BlockingDriver(HttpTransport()).run(operation(ApiCalls(connect(), timeout)))

    return await asyncio.to_thread(run)


async def run_command(words: Sequence[str], target: Sequence[str], environ: Mapping[str, str] = os.environ) -> Any:
    """Return what `knodel WORDS -o json` prints. Raises KnodelError if it fails.

    `target` are the options that select the platform or the cluster: `--state FOLDER`, `--kube-context NAME`.
    A process of its own keeps the imports and the blocking checks of commands such as `doctor` out of the platform.
    """
    arguments = [*words, "-o", "json", *target]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "serving.cli.main", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        limit=MOST_OUTPUT, env=dict(environ),
    )  # fmt: skip
    try:
        output, errors = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
    except TimeoutError as error:
        raise KnodelError(
            f"`knodel {' '.join(words)}` took longer than {COMMAND_SECONDS:.0f} s: run it yourself"
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return json.loads(output)
    except ValueError as error:
        reason = one_line(errors.decode("utf-8", "replace")) or f"exit code {process.returncode}"
        raise KnodelError(f"`knodel {' '.join(words)}` failed: {reason}") from error
