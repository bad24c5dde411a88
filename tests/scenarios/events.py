"""What a scenario needs of events: the webhook's address, a sink for those that tell what became of it, the command."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import EVENT_SOURCE, SECRET, name_of
from tests.eventing.scripted_receiver import Receiver

COMMAND = (sys.executable, "-m", "serving.cli.main")
PATIENCE = 120.0  # s for one program


@dataclass(frozen=True, slots=True)
class Events:
    """`folder` holds what the platform finds below the address of its artifacts; `sink` is one that is told."""

    webhook: str
    folder: Path
    environment: Mapping[str, str]
    options: Sequence[str]
    namespace: str
    sink: Callable[[], AbstractAsyncContextManager[Receiver]]

    async def knodel(self, *words: str) -> str:
        """Run `knodel` on the platform; its stdout."""
        return await run([*COMMAND, *words, "--namespace", self.namespace, *self.options], self.environment)

    @asynccontextmanager
    async def allowed(self, cluster: Cluster, source: str, *options: str) -> AsyncIterator[str]:
        """The key by which `source` may send, as `knodel events allow` makes it; its EventSource goes at the end."""
        said = json.loads(await self.knodel("events", "allow", source, *options, "--rotate", "-o", "json"))
        event_source, secret = said["items"]
        try:
            yield str(secret["stringData"]["current"])
        finally:
            for kind, name in ((EVENT_SOURCE, name_of(event_source)), (SECRET, name_of(secret))):
                with suppress(NotFound):
                    await cluster.delete(kind, name, self.namespace)


async def run(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a program to its end; its stdout. With another exit code than 0 the test fails."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, env={**os.environ, **environment}, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode == 0, f"{argv}: {process.returncode}\n{out.decode()}{err.decode()}"
    return out.decode()


def told(sink: Receiver, model: str) -> list[dict[str, Any]]:
    """The events about the Model that the sink has got, in that order, one of each id."""
    events = [json.loads(body) for _, body in list(sink.sent)]
    known = {event["id"]: event for event in events if event["source"].endswith(f"/models/{model}")}
    return list(known.values())
