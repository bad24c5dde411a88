"""A sender that a platform on this machine knows: its key, its events, and what the webhook answers to each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp

from eventing.auth.signing import sign
from eventing.emit import TYPE
from tests.platform.machine import Machine

FORMAT = "application/cloudevents+json"


@dataclass(frozen=True, slots=True)
class Sender:
    """One EventSource's; `control` is the platform's port."""

    control: int
    source: str
    key: str

    @classmethod
    def allowed(cls, here: Machine, source: str, models: str) -> Sender:
        """One that may change these models from the machine's folder."""
        allowed = ("--models", models, "--storage-prefix", f"file://{here.folder}/", "-o", "json")
        said = json.loads(here.run("events", "allow", source, *allowed))
        [key] = (one["stringData"]["current"] for one in said["items"] if one["kind"] == "Secret")
        return cls(here.control, source, key)

    @property
    def url(self) -> str:
        """Of the webhook."""
        return f"http://127.0.0.1:{self.control}/events"

    def event(self, id: str, data: Any, type: str = TYPE) -> bytes:
        """One, dated now."""
        at = datetime.now(UTC).isoformat()
        made = {"specversion": "1.0", "id": id, "source": self.source, "type": type, "time": at, "data": data}
        return json.dumps(made).encode()

    def headers(self, body: bytes) -> dict[str, str]:
        """What proves who sends it."""
        return {"content-type": FORMAT, **sign(self.key, "msg-1", datetime.now(UTC), body)}

    async def send(self, session: aiohttp.ClientSession, body: bytes) -> tuple[int, str]:
        """Status and Retry-After."""
        async with session.post(self.url, data=body, headers=self.headers(body)) as answer:
            await answer.read()
            return answer.status, answer.headers.get("retry-after", "")
