"""A small language model behind OpenAI's protocol, on the loopback address: it repeats what the user says.

Some messages have another effect:

    break     the connection is closed after the first words
    fail      an error event after the first words
    endless   words without end, until the caller has left
    cut       `finish_reason` is `length`
    escape    the answer has escape sequences of terminals
    long      400 in OpenAI's form: the context is too long
    busy      503 in our form, with Retry-After, once; then as usual
    ill       500 in our form
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.http_servers import served_by

ESCAPE = "\x1b[2Jred\x1b]0;title\x07\ttab\u202fé\nnext"
MODEL = "llm"


class ChatServer:
    """What the server has received, and whether a caller has left."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.left = threading.Event()
        self.was_busy = False
        self.has_chats = True


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """A server until the end of the block."""
    server = ChatServer("")

    class Handler(_Handler):
        state = server

    with served_by(Handler, "127.0.0.1") as url:
        server.url = url
        yield server


def reply_to(message: str) -> list[str]:
    """Return the pieces of the answer."""
    if message == "escape":
        return [ESCAPE[:2], ESCAPE[2:]]
    return ["You said: ", *message.split(" ")]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: ChatServer

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Answer the metadata of the model, and 404 for another one."""
        known = self.path.endswith(f"/v2/models/{MODEL}")
        self._json(200 if known else 404, {"name": MODEL} if known else {"error": "not found"})

    def do_POST(self) -> None:
        """Answer a chat."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.state.has_chats or not self.path.endswith("/openai/v1/chat/completions"):
            return self._json(404, {"error": f"no such path: {self.path}"})
        request = json.loads(body)
        self.state.requests.append(request)
        self.state.paths.append(self.path)
        self.state.heads.append(dict(self.headers))
        message = request["messages"][-1]["content"]
        if refusal := self._refusal(request, message):
            return self._json(*refusal)
        if not request.get("stream"):
            return self._json(200, self._completion(request, message))
        return self._stream(request, message)

    def _refusal(self, request: dict[str, Any], message: str) -> tuple[Any, ...] | None:
        if request["model"] not in (MODEL, f"{MODEL}:legal"):
            about: dict[str, Any] = {"message": f"no model {request['model']}", "type": "invalid_request_error"}
            return 404, {"error": {**about, "code": "model_not_found"}}
        if message == "long":
            about = {"message": "9000 tokens are more than 8192", "type": "exceed_context_size_error", "code": 400}
            return 400, {"error": about}
        if message == "busy" and not self.state.was_busy:
            self.state.was_busy = True
            return 503, {"error": "all slots are busy"}, {"Retry-After": "0"}
        return (500, {"error": "out of memory"}) if message == "ill" else None

    def _completion(self, request: dict[str, Any], message: str) -> dict[str, Any]:
        pieces = reply_to(message)
        said = {"role": "assistant", "content": "".join(pieces)}
        choice = {"index": 0, "message": said, "finish_reason": "length" if message == "cut" else "stop"}
        usage = {"prompt_tokens": 3, "completion_tokens": len(pieces), "total_tokens": 3 + len(pieces)}
        return {"object": "chat.completion", "model": request["model"], "choices": [choice], "usage": usage}

    def _stream(self, request: dict[str, Any], message: str) -> None:
        self.send_response(200)
        for name, value in (("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"),
                            ("Knodel-Revision", "llm-00001")):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self._write(": a comment\n\n")
        self._choice({"role": "assistant", "content": None})
        whole = self._completion(request, message)
        for piece in reply_to(message):
            self._choice({"content": piece})
            if message == "break":
                self.close_connection = True
                return
            if message == "fail":
                self._event({"error": {"message": "the device is lost", "type": "server_error", "code": 500}})
                self._write("")
                return
        while message == "endless":
            try:
                self._choice({"content": "word "})
            except OSError:
                self.state.left.set()
                self.close_connection = True
                return
        self._choice({}, whole["choices"][0]["finish_reason"])
        self._event({"object": "chat.completion.chunk", "choices": [], "usage": whole["usage"]})
        self._write("data: [DONE]\n\n")
        self._write("")

    def _choice(self, delta: dict[str, Any], reason: str | None = None) -> None:
        self._event({"object": "chat.completion.chunk",
                     "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})  # fmt: skip

    def _event(self, value: dict[str, Any]) -> None:
        self._write(f"data: {json.dumps(value)}\n\n")

    def _write(self, text: str) -> None:
        content = text.encode()
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()

    def _json(self, status: int, value: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        for name, one in {"Content-Type": "application/json", "Content-Length": str(len(content)),
                          **(headers or {})}.items():  # fmt: skip
            self.send_header(name, one)
        self.end_headers()
        self.wfile.write(content)
