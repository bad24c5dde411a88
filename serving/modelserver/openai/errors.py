"""Errors in the forms of OpenAI and of Anthropic. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from serving.modelserver.base.errors import InvalidRequest, NotReady, ResourceNotFound, ServingError

_ENCODE: Final = msgspec.json.Encoder().encode
_OPENAI: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_SERVER: Final = 500


class ModelNotFound(ResourceNotFound):
    """The request names a model or an adapter that is not served here."""


class InvalidParameter(InvalidRequest):
    """The member `param` of the request is invalid."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


class EngineRestarts(NotReady):
    """The engine has ended and is started again."""


class _Error(msgspec.Struct):
    message: str


class _ErrorBody(msgspec.Struct):
    error: _Error
    type: str = ""


_ERROR_BODY: Final = msgspec.json.Decoder(_ErrorBody)


def mend_error(status: int, body: bytes, refusals: Sequence[str], *, anthropic: bool) -> tuple[int, bytes]:
    """Return the status and the body with which an engine's error response is passed on.

    They are its own, unless its form is not the API's, or it is 500 although the request is at fault (`refusals`).
    """
    make = _anthropic if anthropic else openai_error_body
    try:
        told = _ERROR_BODY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return status, make(status, f"the engine responded with {status}")
    message = told.error.message
    if status == _SERVER and any(part in message for part in refusals):
        return InvalidRequest.status, make(InvalidRequest.status, message)
    return status, make(status, message) if anthropic and told.type != "error" else body


def openai_error(error: ServingError) -> bytes:
    """Return `{"error": {"message", "type", "param", "code"}}`, as OpenAI's API has it."""
    param, code = ("model", "model_not_found") if isinstance(error, ModelNotFound) else (None, None)
    if isinstance(error, InvalidParameter):
        param = error.param
    return openai_error_body(error.status, str(error), param, code)


def anthropic_error(error: ServingError) -> bytes:
    """Return `{"type": "error", "error": {"type", "message"}}`, as Anthropic's API has it."""
    return _anthropic(error.status, str(error))


def openai_error_body(status: int, message: str, param: str | None = None, code: str | None = None) -> bytes:
    """Return the body of an error response of OpenAI's API."""
    kind = _OPENAI.get(status, "invalid_request_error" if status < _SERVER else "server_error")
    return _ENCODE({"error": {"message": message, "type": kind, "param": param, "code": code}})


def _anthropic(status: int, message: str) -> bytes:
    kind = _ANTHROPIC.get(status, "invalid_request_error" if status < _SERVER else "api_error")
    return _ENCODE({"type": "error", "error": {"type": kind, "message": message}})
