"""Errors in OpenAI's form: `{"error": {"message": …, "type": …, "param": …, "code": …}}`."""

from __future__ import annotations

from typing import Final

from serving.modelserver.base.errors import InvalidRequest, ResourceNotFound
from serving.modelserver.base.responses import json_body

TYPES: Final = {429: "rate_limit_error"}
_CLIENT, _SERVER = "invalid_request_error", "server_error"
_FIRST_OF_SERVER: Final = 500


class InvalidParameter(InvalidRequest):
    """The parameter `param` of the request is invalid."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class UnknownModel(ResourceNotFound):
    """The request is for another model."""

    param = "model"
    code = "model_not_found"


def openai_error(error: Exception, status: int) -> bytes:
    """Return the body of an error response with this status."""
    kind = TYPES.get(status) or (_SERVER if status >= _FIRST_OF_SERVER else _CLIENT)
    about = {"param": getattr(error, "param", None), "code": getattr(error, "code", None)}
    return json_body({"error": {"message": str(error), "type": kind, **about}})
