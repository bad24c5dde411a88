"""python -m tests.support.vllm_stub serve FOLDER --uds SOCKET …, as the program vllm.

It has a child process, as vLLM has its engine core. The member `user` of a request is JSON with what is to happen:
{"replay": NAME} replays another recording, {"endless": true} holds the request until the caller leaves. After the
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
PARSER.add_argument("--lora-modules", nargs="*", default=[])
OPTIONS, _ = PARSER.parse_known_args()
KEY = os.environ.get("VLLM_API_KEY", "")
CAN_SLEEP = OPTIONS.enable_sleep_mode and os.environ.get("VLLM_SERVER_DEV_MODE") == "1"
MODELS = [OPTIONS.served_model_name, *(json.loads(one)["name"] for one in OPTIONS.lora_modules)]
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
        writer.write(recording(name))
        await writer.drain()
        STATE["dead"] = STATE["dead"] or name.startswith("death")
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


def choose(request: str, headers: dict[str, str], body: bytes) -> str:
    """Return the name of the recording for a request."""
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
    found = NAMES.get(request.removeprefix("POST "))
    if found is None or headers.get("authorization") != f"Bearer {KEY}":
        return "embeddings"  # 404
    return answer(found, json.loads(body))


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
