"""MLflow's endpoint `/invocations`.

Errors have MLflow's form, `{"error_code": "BAD_REQUEST", "message": "…"}` (mlflow `exceptions.py`).
"""

from __future__ import annotations

from typing import ClassVar, Final

from starlette.types import Receive, Scope, Send

from serving.modelserver.base.errors import ServingError
from serving.modelserver.base.headers import media_type
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.base.responses import JSON, json_body, send_body
from serving.modelserver.codec.protocol_invocations import InvocationsCodec
from serving.modelserver.endpoints.infer import UnaryEndpoint
from serving.modelserver.execution.inference import Inference

CSV: Final = b"text/csv"
_CODES: Final = {
    400: "BAD_REQUEST", 404: "RESOURCE_DOES_NOT_EXIST", 413: "BAD_REQUEST", 415: "BAD_REQUEST",
    429: "REQUEST_LIMIT_EXCEEDED", 500: "INTERNAL_ERROR", 503: "TEMPORARILY_UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip


class InvocationsEndpoint:
    """Routes requests by their type, JSON or CSV."""

    def __init__(self, inference: Inference, budget: BodyBudget) -> None:
        self._json = _MlflowEndpoint(inference, budget, lambda model: InvocationsCodec(model.codec))
        self._csv = _MlflowEndpoint(inference, budget, lambda model: InvocationsCodec(model.codec, is_csv=True))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        is_csv = any(name == b"content-type" and media_type(value)[0] == CSV for name, value in scope["headers"])
        await (self._csv if is_csv else self._json)(scope, receive, send)


class _MlflowEndpoint(UnaryEndpoint):
    types: ClassVar[frozenset[bytes]] = frozenset({JSON, CSV})

    async def send_error(self, send: Send, error: ServingError) -> None:
        """Send the error in MLflow's form."""
        body = json_body({"error_code": _CODES.get(error.status, "INTERNAL_ERROR"), "message": str(error)})
        await send_body(send, error.status, body, JSON, error.headers)
