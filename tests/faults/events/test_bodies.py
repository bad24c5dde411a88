"""Events of all sizes at the webhook of a platform: what is too large is refused before it is there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from eventing.limits import DEFAULTS, MEBIBYTE
from loadtests.bench.processes import bytes_of
from tests.faults.events.sender import FORMAT, Sender
from tests.platform.machine import machine
from tests.serving.modelserver.client import Answer, Caller, request
from tests.support.wait import eventually

SOURCE = "/training/large"
SMALL = 64 << 10
"""Bytes that a consumer should take at least (CloudEvents, Size Limits)."""
GIBIBYTE = 1 << 30
AT_ONCE = 8
ROOM = 96 * MEBIBYTE
"""What all senders together may take (64 MiB), and what the allocator keeps."""


def padded(sender: Sender, size: int) -> bytes:
    """An event of so many bytes that means nothing here."""
    body = sender.event("padded", "", type="com.example.other")
    return sender.event("padded", "x" * (size - len(body)), type="com.example.other")


async def endless(port: int) -> tuple[Answer, int]:
    """A body of 1 GiB in chunks, as far as it is taken: the answer, and how many bytes went."""
    caller = await Caller.connect(port)
    caller.write(request("POST", "/events", transfer_encoding="chunked", content_type=FORMAT))
    answer = asyncio.create_task(caller.answer())
    piece, sent = b"%x\r\n%b\r\n" % (MEBIBYTE, b" " * MEBIBYTE), 0
    while sent < GIBIBYTE and not answer.done():
        try:
            await caller.send(piece)
        except ConnectionError:
            break
        sent += MEBIBYTE
        await asyncio.sleep(0)
    try:
        return await answer, sent
    finally:
        caller.close()


@pytest.mark.timeout(120)
@pytest.mark.fault("E6")
async def test_64_kib_is_taken_and_too_much_is_413_with_little_memory(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        sender = Sender.allowed(here, SOURCE, "m*")
        async with aiohttp.ClientSession() as session:

            async def is_known() -> bool:
                return (await sender.send(session, sender.event("first", {}, type="com.example.other")))[0] == 202

            await eventually(is_known)
            for size in (SMALL, DEFAULTS.body):
                assert (await sender.send(session, padded(sender, size)))[0] == 202
        before = bytes_of(here.facts()["pid"], "VmHWM")
        announced = await Caller.connect(here.control)
        announced.write(request("POST", "/events", content_length=str(DEFAULTS.body + 1), content_type=FORMAT))
        assert (await announced.answer()).status == 413  # none of its body was sent
        announced.close()
        answers = await asyncio.gather(*(endless(here.control) for _ in range(AT_ONCE)))
        assert {answer.status for answer, _ in answers} == {413}
        assert all(json.loads(answer.body)["error"].isprintable() for answer, _ in answers)
        assert max(sent for _, sent in answers) < GIBIBYTE // 8
        assert bytes_of(here.facts()["pid"], "VmHWM") - before < ROOM
        here.run("list")
