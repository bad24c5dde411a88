"""Tokens by which the processes of one machine recognize requests that passed the gateway.

Every user of a machine can connect to the loopback port of a replica and send any header. So the gateway adds `HEADER`
with a token to each request. The activator checks its own token and replaces it by that of the replica. The model
server counts a request for the judge of a rollout only if its token is valid (`serving.modelserver.base.split`).

Each Pod has its own token, so that the code of one model cannot send requests that count for another. Tokens are
derived from a key in the state folder, so the next platform has the same tokens for the processes that it adopts.
"""

from __future__ import annotations

import hmac
from typing import Final

HEADER: Final = "Knodel-Internal-Gateway"
"""The gateway removes this header from requests of clients (`clusters.gateway.headers.STRIPPED_PREFIXES`)."""

VARIABLE: Final = "KNODEL_GATEWAY_TOKEN"
"""The environment variable with the token of a process. Without it, the process accepts every request as valid."""

ACTIVATOR: Final = "activator"
_LENGTH: Final = 32  # hexadecimal digits, 128 bits


class GatewayTokens:
    """The tokens of one machine, derived from a secret key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, process: str) -> str:
        """Return the token of a Pod, given its uid, or of the `ACTIVATOR`."""
        return hmac.digest(self._key, process.encode(), "sha256").hex()[:_LENGTH]


def is_valid(sent: bytes, token: bytes) -> bool:
    """Return whether a request with the token `sent` came through the gateway to the process with `token`."""
    return hmac.compare_digest(sent, token)
