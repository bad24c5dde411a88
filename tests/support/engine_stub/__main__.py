"""python -m tests.support.engine_stub SOCKET, with the key in STUB_KEY. It ends with its standard input.

The member `user` of a request, or its prompt, is JSON with what is to happen: {"die": N} ends the process after N
tokens, {"error": N} sends an error event, {"status": S} answers with this status, {"endless": true} sends tokens until
the caller leaves,
{"set": {…}} changes the page /state; its member `metrics` is the page /metrics, which is 404 without it. {"pause": S}
waits S seconds for each token, {"timings": {…}} is reported as llama.cpp does in an answer that is no stream.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

KEY = os.environ["STUB_KEY"]
STATE: dict[str, Any] = {
    "running": 0, "waiting": 0, "share": None, "sleeping": False, "left": 0, "asleep": 0, "sleeps": 0, "wakes": 0.0,
}  # fmt: skip


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        _, path, _ = head[0].split()
        if headers.get("authorization") != f"Bearer {KEY}":
            answer(writer, 401, {"error": {"message": "wrong key"}})
        elif path == "/health":
            answer(writer, 200, {})
        elif path == "/state":
            answer(writer, 200, STATE)
        elif path == "/metrics" and STATE.get("metrics"):
            answer(writer, 200, STATE["metrics"])
        elif path == "/metrics":
            answer(writer, 404, {"error": {"message": "no such path"}})
        elif path in ("/wake", "/sleep"):
            await asyncio.sleep(STATE["wakes"] if path == "/wake" else 0.0)
            STATE["sleeping"] = path == "/sleep"
            STATE["sleeps"] += STATE["sleeping"]
            answer(writer, 200, {})
        else:
            STATE["asleep"] += STATE["sleeping"]  # a request that should not have come
            await generate(path, json.loads(body), headers, writer)
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def generate(path: str, body: dict[str, Any], headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    """Answer a request for text: the words w0 w1 w2 …"""
    prompt = str(body.get("prompt"))
    wish = json.loads(body.get("user") or (prompt if prompt.startswith("{") else "{}"))
    STATE.update(wish.get("set", {}))
    if "status" in wish:
        message = wish.get("message", "as asked")
        answer(writer, wish["status"], {"error": {"message": message, "type": "invalid_request_error"}})
        return
    count = body.get("max_tokens", 3)
    usage = {"prompt_tokens": 7, "completion_tokens": count}
    told = {
        "model": body.get("model"), "adapter": body.get("adapter"), "accept": headers.get("accept"),
        "id": headers.get("x-request-id"), "trace": headers.get("traceparent"),
    }  # fmt: skip
    STATE["running"] += 1
    try:
        if not body.get("stream"):
            text = "".join(f"w{number} " for number in range(count))
            if "die" in wish:
                os._exit(9)
            choice = {"text": text} if path == "/v1/completions" else {"message": {"content": text}}
            await asyncio.sleep(count * wish.get("pause", 0.0))
            timings = {"timings": wish["timings"]} if "timings" in wish else {}
            answer(writer, 200, {"choices": [choice], "usage": usage, "told": told, **timings})
            return
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nServer: stub\r\n"
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        event(writer, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        number = 0
        while number < count or wish.get("endless"):
            if number == wish.get("die"):
                await writer.drain()
                os._exit(9)
            if number == wish.get("error"):
                event(writer, {"error": {"message": "the core died", "code": 500}})
                chunk(writer, b"")
                return
            event(writer, {"choices": [{"delta": {"content": f"w{number} "}, "text": f"w{number} "}]})
            await writer.drain()
            if wish.get("endless") or "pause" in wish:
                await asyncio.sleep(wish.get("pause", 0.01))
            number += 1
        event(writer, {"choices": [], "usage": usage})
        chunk(writer, b"data: [DONE]\n\n")
        chunk(writer, b"")
    except OSError:
        STATE["left"] += 1
        raise
    finally:
        STATE["running"] -= 1


def event(writer: asyncio.StreamWriter, content: Any) -> None:
    """Send one event."""
    chunk(writer, b"data: " + json.dumps(content).encode() + b"\n\n")


def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send a chunk; an empty one is the last."""
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def answer(writer: asyncio.StreamWriter, status: int, content: Any) -> None:
    """Send a response: JSON, or a text as it is."""
    body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


async def main(path: str) -> None:
    """Serve until the standard input ends."""
    if "FAIL" in os.environ:
        sys.exit(os.environ["FAIL"])
    await asyncio.start_unix_server(serve, path, backlog=5)  # as llama.cpp
    await asyncio.to_thread(sys.stdin.buffer.read)


asyncio.run(main(sys.argv[1]))
