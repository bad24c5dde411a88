"""The last lines of the audit log, in memory."""

from __future__ import annotations

import contextlib
import json
import logging
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from clusters.base.objects import timestamp

MOST: Final = 500
FIELDS: Final = ("method", "path", "status")
SOCKET: Final = ":0"
"""The client of a request over the Unix socket, which only the owner's commands use."""


class AuditRecords(logging.Handler):
    """Keeps the last lines of the audit log, and of the dashboard's logins and actions, in memory."""

    AUDITED: Final = "serving.control_api.audit"
    LOGINS: Final = "serving.dashboard.entrance"
    ACTIONS: Final = "serving.dashboard.app"

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._kept: deque[dict[str, Any]] = deque(maxlen=MOST)
        for name in (self.AUDITED, self.LOGINS, self.ACTIONS):
            logging.getLogger(name).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        at, text = timestamp(datetime.fromtimestamp(record.created, UTC)), record.getMessage()
        self._kept.append({"at": at, **audit_fields(text)})

    def newest(self) -> list[dict[str, Any]]:
        """Return the lines, newest first."""
        return list(reversed(self._kept))


def audit_fields(text: str) -> dict[str, Any]:
    """Return the fields of a line: those of the audit log, or only its text. Pure."""
    kind, _, rest = text.partition(" ")
    if kind == "audit":
        with contextlib.suppress(ValueError, AttributeError):
            found = json.loads(rest)
            return {"text": "", **{name: found.get(name, "") for name in FIELDS}, "by": _sender_of(found)}
    return {"text": text.removeprefix("dashboard: "), **dict.fromkeys(FIELDS, ""), "by": ""}


def _sender_of(found: Mapping[str, Any]) -> str:
    client, agent = str(found.get("client", "")), str(found.get("agent", ""))
    return "the command" if client == SOCKET else " ".join(filter(None, (agent, client)))
