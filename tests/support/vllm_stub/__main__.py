"""python -m tests.support.vllm_stub serve FOLDER --uds SOCKET …, as the program vllm.

It has a child process, as vLLM has its engine core. The member `user` of a request is JSON with what is to happen:
{"replay": NAME} replays another recording, {"endless": true} holds the request until the caller leaves,
{"while": PATH} responds once that file is gone. It loads and unloads adapters. After the
recording of a death its health is that of a dead engine. A request to the sleeping program gets no answer. A worker
(--headless) does nothing, for ever.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.vllm_stub import recording

PARSER = argparse.ArgumentParser()
PARSER.add_argument("verb", choices=["serve"])
PARSER.add_argument("folder")
PARSER.add_argument("--uds")
PARSER.add_argument("--served-model-name")
PARSER.add_argument("--headless", action="store_true")
PARSER.add_argument("--node-rank")
PARSER.add_argument("--master-addr")
PARSER.add_argument("--enable-sleep-mode", action="store_true")
PARSER.add_argument("--enable-lora", action="store_true")
PARSER.add_argument("--lora-modules", nargs="*", default=[])
OPTIONS, _ = PARSER.parse_known_args()
KEY = os.environ.get("VLLM_API_KEY", "")
CAN_SLEEP = OPTIONS.enable_sleep_mode and os.environ.get("VLLM_SERVER_DEV_MODE") == "1"
MODELS = [OPTIONS.served_model_name, *(json.loads(one)["name"] for one in OPTIONS.lora_modules)]
CHANGES = OPTIONS.enable_lora and os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") == "1"
LORA_ROUTES = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")
NAMES = {
    "/v1/chat/completions": "chat", "/v1/completions": "completions", "/v1/responses": "responses",
    "/v1/messages": "messages", "/v1/messages/count_tokens": "count-tokens",
}  # fmt: skip
STATE = {"asleep": False, "dead": False, "endless": 0}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, path, _ = head[0].split()
        name = choose(f"{method} {path}", headers, body)
        if name == "endless" or (STATE["asleep"] and path.startswith("/v1")):
            STATE["endless"] += 1
            await reader.read()
            STATE["endless"] -= 1
            return
        while (wish := wish_of(body)) and Path(str(wish.get("while", ""))).is_file():  # noqa: ASYNC110 - of the test
            await asyncio.sleep(0.02)
        writer.write(name if isinstance(name, bytes) else recording(name))
        await writer.drain()
        STATE["dead"] = STATE["dead"] or str(name).startswith("death")
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


def choose(request: str, headers: dict[str, str], body: bytes) -> str | bytes:
    """Return the name of the recording for a request, or a response."""
    if request == "GET /health":
        return "health-dead" if STATE["dead"] else "health"
    if request == "GET /metrics":
        return "metrics-asleep" if STATE["asleep"] else "metrics-busy" if STATE["endless"] else "metrics-idle"
    if request.startswith("POST /sleep") and CAN_SLEEP:
        STATE["asleep"] = True
        return "sleep"
    if request == "POST /wake_up" and CAN_SLEEP:
        STATE["asleep"] = False
        return "wake"
    if request.removeprefix("POST ") in LORA_ROUTES and CHANGES and headers.get("authorization") == f"Bearer {KEY}":
        return change_adapters(request.rpartition("/")[2], json.loads(body))
    found = NAMES.get(request.removeprefix("POST "))
    if found is None or headers.get("authorization") != f"Bearer {KEY}":
        return "embeddings"  # 404
    return answer(found, json.loads(body))


def change_adapters(verb: str, body: dict[str, Any]) -> bytes:
    """Load or unload an adapter, with the responses of `OpenAIServingModels` of vLLM 0.32.

    A file `broken` among those of the adapter stands for weights that vLLM cannot load.
    """
    name = body["lora_name"]
    if verb == "unload_lora_adapter":
        if name not in MODELS[1:]:
            return lora_error(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
        MODELS.remove(name)
        return response(200, "text/plain", f"Success: LoRA adapter '{name}' removed successfully.")
    if name in MODELS:
        how = "If you want to load the adapter in place, set 'load_inplace' to True."
        return lora_error(400, "InvalidUserInput", f"The lora adapter '{name}' has already been loaded. {how}")
    if (Path(body["lora_path"]) / "broken").exists():
        return lora_error(500, "InternalServerError", "Call to add_lora method failed: size mismatch")
    MODELS.append(name)
    print(f"Loaded new LoRA adapter: name '{name}', path '{body['lora_path']}'", flush=True)
    return response(200, "text/plain", f"Success: LoRA adapter '{name}' added successfully.")


def lora_error(status: int, kind: str, message: str) -> bytes:
    """Return an error in the form of vLLM."""
    error = {"message": message, "type": kind, "param": None, "code": status}
    return response(status, "application/json", json.dumps({"error": error}))


def response(status: int, kind: str, content: str) -> bytes:
    """Return a response."""
    head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(content)}\r\ncontent-type: {kind}\r\nconnection: close\r\n"
    return f"{head}\r\n{content}".encode()


def wish_of(body: bytes) -> dict[str, Any]:
    """Return what is to happen by the member `user` of a request."""
    found: dict[str, Any] = json.loads(json.loads(body).get("user") or "{}") if body else {}
    return found


def answer(name: str, body: dict[str, Any]) -> str:
    """Return the name of the recording for a request to a model."""
    wish = json.loads(body.get("user") or "{}")
    if body["model"] not in MODELS:
        return "unknown-model"
    if "replay" in wish:
        return str(wish["replay"])
    if wish.get("endless"):
        return "endless"
    return f"{name}-stream" if body.get("stream") else name


async def main() -> None:
    """Serve for ever; the standard input is not read."""
    if OPTIONS.headless:
        print(f"rank {OPTIONS.node_rank} of {OPTIONS.master_addr}, pid={os.getpid()}", flush=True)
        await asyncio.Event().wait()
    if "FAIL" in os.environ:
        sys.exit(os.environ["FAIL"])
    core = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    print(f"core pid={core.pid}", flush=True)
    await asyncio.start_unix_server(serve, OPTIONS.uds)
    await asyncio.Event().wait()


asyncio.run(main())
