"""Memory of the control API under bad bodies of a caller who knows the token: bounded, however many come at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from loadtests.bench.processes import bytes_of
from serving.control_api.body import MAX_BODY
from serving.types.settings.state import CONTROL_SOCKET
from tests.platform.machine import Machine, machine
from tests.serving.modelserver.client import Caller, ask, request

MODELS = "/apis/knodel.dev/v1alpha1/namespaces/default/models"
APPLY = {"method": "PATCH", "path": f"{MODELS}/good?fieldManager=t", "content_type": "application/apply-patch+yaml"}
MEBIBYTE = 1 << 20
AT_ONCE = 32
SLOW = 200
CUT_OFF = 0
"""In the place of a status: who goes on to send may see the end of the connection first."""
GROWTH = 192 * MEBIBYTE
"""Bytes: the room of all bodies, the values of one (a million empty objects: 112 MiB), what the allocator keeps. It was
1164 MiB with 32 at once that were parsed side by side."""
BODIES = {
    "deep": b"[" * (MAX_BODY - 1),
    "wide": b'{"spec": [' + b"1," * 1_490_000 + b"1]}",
    "objects": b'{"spec": [' + b"{}," * 1_000_000 + b"1]}",
    "objects, slowly decoded": b'{"spec": ["\\n",' + b"{}," * 1_000_000 + b"1]}",
    "names": b'{"spec": {' + b",".join(b'"%x":1' % number for number in range(300_000)) + b"}}",
}
ALIASES = b"\n".join(
    [b"a0: &a0 [x]", *(b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 10))]
)
YAML = {"aliases": ALIASES, "deep": b"- " * 100_000, "wide": b"a: [" + b"1," * 100_000 + b"1]"}


class Api:
    """The control API of a machine, and the process that answers."""

    def __init__(self, here: Machine) -> None:
        self._place = here.state / CONTROL_SOCKET
        self._token = (here.state / "token").read_text().strip()
        self._pid = int(here.facts()["pid"])

    def head(self, body: bytes = b"", method: str = "POST", path: str = MODELS, **more: str) -> bytes:
        """A request."""
        said = {"host": "localhost", "authorization": f"Bearer {self._token}", "content_type": "application/json"}
        return request(method, path, body, **(said | {"connection": "close"} | more))

    async def send(self, body: bytes, **more: str) -> int:
        """The status of one request."""
        try:
            return (await ask(self._place, self.head(body, **more))).status
        except ConnectionError:
            return CUT_OFF

    async def endless(self) -> int:
        """Of a body of 1 GiB whose length is not told."""
        caller = await Caller.connect(self._place)
        caller.write(self.head(transfer_encoding="chunked"))
        answer = asyncio.create_task(caller.answer())
        piece = b"%x\r\n%b\r\n" % (MEBIBYTE, bytes(MEBIBYTE))
        with contextlib.suppress(ConnectionError):  # it has been refused, and sent on
            for _ in range(1024):
                await caller.send(piece)
                if answer.done():
                    break
        try:
            return (await answer).status
        except ConnectionError:
            return CUT_OFF
        finally:
            caller.close()

    async def unfinished(self) -> Caller:
        """Who sends nearly all of the largest body, and stays."""
        caller = await Caller.connect(self._place)
        caller.write(self.head(content_length=str(MAX_BODY)))
        with contextlib.suppress(ConnectionError):
            await caller.send(bytes(MAX_BODY - 1))
        return caller

    def memory(self, name: str = "VmRSS") -> int:
        """Bytes that the process holds; with `VmHWM` the most since `forget`."""
        return bytes_of(self._pid, name)

    def forget(self) -> None:
        """What was held before counts no more (proc_pid_clear_refs(5))."""
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")

    async def grown(self, name: str, work: Coroutine[Any, Any, list[int]], *allowed: int) -> None:
        """Do it; its statuses are of `allowed`, and the process did not grow by GROWTH."""
        self.forget()
        before = self.memory()
        statuses = Counter(await work)
        growth = self.memory("VmHWM") - before
        print(f"{name}: {dict(statuses)}, {growth >> 20} MiB more")
        assert set(statuses) <= set(allowed), (name, statuses)
        assert growth < GROWTH, name


@pytest.mark.bad_input("manage-bodies")
@pytest.mark.timeout(180)
def test_bodies_of_all_kinds_one_alone_and_many_at_once_cost_little_memory(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        asyncio.run(attacked(Api(here)))


async def attacked(api: Api) -> None:
    """The largest bodies; who stays in them takes no room of small ones."""
    await api.grown("1 GiB", _all(api.endless() for _ in range(AT_ONCE)), 413, 429, CUT_OFF)
    for name, body in BODIES.items():
        await api.grown(name, _all([api.send(body)]), 400, 413)
    for name, body in YAML.items():
        await api.grown(f"YAML, {name}", _all([api.send(body, **APPLY)]), 400, 422)
    objects = BODIES["objects"]
    await api.grown("objects at once", _all(api.send(objects) for _ in range(AT_ONCE)), 413, 429, CUT_OFF)
    slow: list[Caller] = []

    async def stay() -> list[int]:
        slow.extend(await asyncio.gather(*(api.unfinished() for _ in range(SLOW))))
        return [await api.send(b"{}")]

    try:
        await api.grown("slow ones", stay(), 422)
    finally:
        for caller in slow:
            caller.reset()
    assert await api.send(b"{}") == 422


async def _all(calls: Any) -> list[int]:
    return list(await asyncio.gather(*calls))
