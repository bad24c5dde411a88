"""A replica without a recorded digest becomes ready only after the platform has confirmed its digest."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.modelserver.base.first_digest import FILE_NAME
from serving.storage.base.digest import of_bytes
from tests.serving.modelserver.client import Answer, ask, request
from tests.support import models
from tests.support.ports import free_port
from tests.support.wait import eventually

OTHER = "sha256:" + "b" * 64


class Replica:
    """A server process of revision m-00001, with a mount for the record."""

    def __init__(self, folder: Path) -> None:
        self.scratch = folder / "scratch"
        self.record = folder / "record" / "m-00001"
        for place in (self.scratch, self.record.parent):
            place.mkdir()
        self.path = models.write(folder, "double")
        self.digest = of_bytes(self.path.read_bytes())
        self.port, self.management = free_port(), free_port()
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the server, and wait until its management port answers."""
        environment = {
            "PATH": os.environ["PATH"], "TMPDIR": str(self.scratch), "K_REVISION": "m-00001",
            "KNODEL_DIGESTS": str(self.record.parent), "PORT": str(self.port),
            "MANAGEMENT_PORT": str(self.management),
        }  # fmt: skip
        words = ("-m", "serving.modelserver", "--name", "m", "--storage-uri", self.path.as_uri())
        quiet = asyncio.subprocess.DEVNULL
        self.process = await asyncio.create_subprocess_exec(sys.executable, *words, env=environment, stderr=quiet)

        async def answers() -> bool:
            try:
                return (await ask(self.management, request("GET", "/v2/health/live"))).status == 200
            except (ConnectionError, asyncio.IncompleteReadError):
                return False

        await eventually(answers)

    async def end(self) -> None:
        """Stop the server, as the kubelet does."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self.process.wait(), 20.0)

    async def loaded(self) -> Answer:
        """Return the digest page once the files are local."""
        return await ask(self.management, request("GET", "/digest?wait=20"))

    async def confirm(self, digest: str) -> Answer:
        """Send a recorded digest."""
        return await ask(self.management, request("PUT", "/digest", json.dumps({"digest": digest}).encode()))

    async def ready(self) -> Answer:
        """Return the response to the readiness probe."""
        return await ask(self.port, request("GET", "/v2/health/ready"))

    async def is_ready(self) -> bool:
        """Return whether the replica is ready."""
        return (await self.ready()).status == 200


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    made = Replica(tmp_path)
    yield made
    await made.end()


async def waits(replica: Replica) -> bool:
    """Return whether the model is loaded, and the confirmation is the only thing missing."""
    return "not recorded yet" in (await ready_error(replica))


async def ready_error(replica: Replica) -> str:
    return str((await replica.ready()).json.get("error", ""))


async def test_it_reports_its_digest_and_is_ready_once_that_is_confirmed(replica: Replica) -> None:
    await replica.start()
    assert (await replica.loaded()).json == {"digest": replica.digest, "confirmed": False}
    await eventually(lambda: waits(replica))
    called = await ask(replica.port, request("POST", "/v2/models/m/infer", b"{}"))
    assert called.status == 503

    refused = await replica.confirm(OTHER)
    assert refused.status == 409 and replica.digest in refused.json["error"]
    assert not await replica.is_ready()
    assert not (replica.scratch / FILE_NAME).exists()

    assert (await replica.confirm(replica.digest)).status == 204
    await eventually(replica.is_ready)
    assert (await replica.loaded()).json == {"digest": replica.digest, "confirmed": True}


async def test_a_container_that_restarts_needs_no_second_confirmation(replica: Replica) -> None:
    await replica.start()
    await replica.loaded()
    await replica.confirm(replica.digest)
    await eventually(replica.is_ready)
    await replica.end()
    await replica.start()
    await eventually(replica.is_ready)


async def test_a_container_that_restarts_before_its_confirmation_waits_again(replica: Replica) -> None:
    await replica.start()
    await eventually(lambda: waits(replica))
    await replica.end()  # a request that waits for the digest does not keep it
    await replica.start()
    await eventually(lambda: waits(replica))


async def test_a_replica_that_mounts_the_record_waits_for_nobody(replica: Replica) -> None:
    replica.record.write_text(replica.digest)
    await replica.start()
    await eventually(replica.is_ready)
    assert (await replica.loaded()).json["confirmed"] is True


@pytest.mark.parametrize("body", [b"", b"[]", b'{"digest": 1}', b'{"digest": "x", "more": 1}', b"\xff"])
async def test_what_is_no_confirmation_is_refused(replica: Replica, body: bytes) -> None:
    await replica.start()
    await replica.loaded()
    assert (await ask(replica.management, request("PUT", "/digest", body))).status == 400
    assert (await ask(replica.management, request("GET", "/digest?wait=soon"))).status == 400
    assert not await replica.is_ready()
