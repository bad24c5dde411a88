"""Record responses of a running vLLM for the stub. Long; run by hand.

python -m tests.support.vllm_stub.record SOCKET KEY MODEL NAME…, with the names of recordings, or none for all that need
no sleep and no death.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "recordings"
TIMES = re.compile(rb'("created(?:_at)?": ?)\d{10}')
MESSAGES = [{"role": "user", "content": "hi"}]
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]}},
}


def requests(model: str) -> dict[str, tuple[str, Any]]:
    """Return path and body of the request of each recording; a body of None is a GET."""
    chat = {"model": model, "messages": MESSAGES, "max_tokens": 3, "temperature": 0, "seed": 1, "ignore_eos": True}
    text = {"model": model, "prompt": "hi", "max_tokens": 3, "temperature": 0, "seed": 1, "ignore_eos": True}
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    return {
        "health": ("/health", None),
        "metrics-idle": ("/metrics", None),
        "chat": ("/v1/chat/completions", chat),
        "chat-stream": ("/v1/chat/completions", {**chat, **usage}),
        "chat-stream-without-usage": ("/v1/chat/completions", {**chat, "stream": True}),
        "chat-logprobs": ("/v1/chat/completions", {**chat, "logprobs": True, "top_logprobs": 2}),
        "chat-schema": ("/v1/chat/completions", {**chat, "response_format": SCHEMA, "max_tokens": 40}),
        "completions": ("/v1/completions", text),
        "completions-stream": ("/v1/completions", {**text, **usage}),
        "responses": ("/v1/responses", {"model": model, "input": "hi", "max_output_tokens": 3, "temperature": 0}),
        "responses-stream": (
            "/v1/responses", {"model": model, "input": "hi", "max_output_tokens": 3, "temperature": 0, "stream": True},
        ),
        "messages": ("/v1/messages", {"model": model, "messages": MESSAGES, "max_tokens": 3, "temperature": 0}),
        "messages-stream": (
            "/v1/messages", {"model": model, "messages": MESSAGES, "max_tokens": 3, "temperature": 0, "stream": True},
        ),
        "count-tokens": ("/v1/messages/count_tokens", {"model": model, "messages": MESSAGES}),
        "embeddings": ("/v1/embeddings", {"model": model, "input": "hi"}),
        "unknown-model": ("/v1/chat/completions", {**chat, "model": "other"}),
        "too-long": ("/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": "x" * 5000}]}),
        "not-json": ("/v1/chat/completions", b"{"),
        "sleep": ("/sleep?level=1&mode=keep", b""),
        "metrics-asleep": ("/metrics", None),
        "wake": ("/wake_up", b""),
    }  # fmt: skip


BEFORE_DEATH = 4  # events
LATER = ("sleep", "metrics-asleep", "wake")
"""Recorded only when named."""


def ask(path: str, key: str, address: str, body: Any) -> bytes:
    """Return the whole response as it came."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(head_of(method, path, key, content) + content)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def head_of(method: str, path: str, key: str, content: bytes) -> bytes:
    """Return the head of a request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: engine\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode()


def save(name: str, response: bytes) -> None:
    """Write a recording, without its time."""
    response = re.sub(rb"(?mi)^date: .*\r\n", b"", response)
    response = TIMES.sub(rb"\g<1>1700000000", response)
    print(name, len(response), response[:60])
    (FOLDER / f"{name}.http").write_bytes(response)


def main(address: str, key: str, model: str, *names: str) -> None:
    """Record."""
    wanted = requests(model)
    for name in names or (name for name in wanted if name not in LATER):
        if name == "metrics-busy":
            record_busy(address, key, model)
        elif name.startswith("death"):
            record_death(address, key, model, name)
        else:
            path, body = wanted[name]
            save(name, ask(path, key, address, body))


def record_busy(address: str, key: str, model: str) -> None:
    """Record the metrics while six requests compete for four slots."""
    body = {**requests(model)["chat"][1], "max_tokens": 3000, "stream": True}
    callers = [threading.Thread(target=ask, args=("/v1/chat/completions", key, address, body)) for _ in range(6)]
    for one in callers:
        one.start()
    time.sleep(0.7)
    save("metrics-busy", ask("/metrics", key, address, None))
    for one in callers:
        one.join()


def record_death(address: str, key: str, model: str, name: str) -> None:
    """Record an answer whose engine core is killed in the middle. The core's id is in $CORE."""
    form = name.removeprefix("death-").removesuffix("-stream")
    path, body = requests(model)[form]
    length = "max_output_tokens" if form == "responses" else "max_tokens"
    stream = name.endswith("-stream")
    content = json.dumps({**body, length: 3000, "ignore_eos": True, "stream": stream}).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(head_of("POST", path, key, content) + content)
        time.sleep(0 if stream else 0.3)
        received = b""
        while stream and received.count(b"data: ") < BEFORE_DEATH:
            received += connection.recv(1 << 12)
        os.kill(int(os.environ["CORE"]), signal.SIGKILL)
        received += b"".join(iter(lambda: connection.recv(1 << 16), b""))
    save(name, received)
    save("health-dead", ask("/health", key, address, None))


if __name__ == "__main__":
    main(*sys.argv[1:])
