"""The address of all language models of a namespace in OpenAI's API: the selected Model, the list, the errors. Pure.

    /openai/v1/…, /namespaces/NAMESPACE/openai/v1/…     the member `model` of the body is NAME or NAME:ADAPTER

The gateway selects the Model by a Lua script (`clusters.gateway.openai_script`), the router on Kubernetes by `select`.
Both accept and refuse the same bodies, except that the gateway leaves errors inside nested values to the model server.
Form of errors and lists: https://platform.openai.com/docs/api-reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from clusters.base.errors import KnodelError
from clusters.base.objects import Object, is_deleting, name_of, namespace_of, parse_timestamp

LANGUAGE_FORMATS: Final = ("gguf", "vllm", "huggingface")
"""The values of `modelFormat` whose servers have OpenAI's API."""
LARGEST_BODY: Final = 32 * 1024 * 1024  # bytes; the body is held until its `model` is known
MOST_MEMBERS: Final = 1000
"""Members of the outer object of a body. OpenAI's API has some 50; each costs the gateway 100 times as much as a byte."""
MODEL_NOT_FOUND: Final = "model_not_found"
NO_MODEL: Final = "missing_required_parameter"
OWNER: Final = "knodel"

_INVALID: Final = "invalid_request_error"
_NAME: Final = re.compile(r"[a-z0-9-]{1,63}")
_ADAPTER: Final = re.compile(r"[^\x00-\x1f]{1,253}")
_MEMBER: Final = b'"model"'
_ESCAPED_LETTER: Final = re.compile(rb"\\u006[dDfF45cC]")  # of "model", whose escaped form is another spelling of it
_SHOWN: Final = 128  # characters of a value in a message
_SERVER_ERROR: Final = 500
_TOO_MANY: Final = 429

Json = dict[str, Any]


class ModelNotSelected(KnodelError):
    """The body selects no Model. `status`, `param` and `code` are those of the error response."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


class Selected(NamedTuple):
    """The Model `name` and its `adapter`, empty for none."""

    name: str
    adapter: str = ""


class LanguageModel(NamedTuple):
    """A Model in the list: `created` in seconds since 1970, and the names of its adapters."""

    namespace: str
    name: str
    created: int = 0
    adapters: tuple[str, ...] = ()


class _Body(msgspec.Struct):
    model: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def select(body: bytes | bytearray) -> Selected:
    """Return the Model that the body of a request selects.

    Raises ModelNotSelected: 400 for a body that is no JSON object, for two members `model` and for none; 404 for a
    value that is not the name of a Model.
    """
    try:
        member = _DECODER.decode(body).model
        if _may_repeat(body):
            _refuse_two(body)
        name = None if isinstance(member, msgspec.UnsetType) else msgspec.json.decode(member)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ModelNotSelected(400, f"the body is not a JSON object: {_reason(error)}") from error
    if not isinstance(name, str):
        raise ModelNotSelected(400, "the body needs the member `model`: the name of a model", param="model", code=NO_MODEL)
    return parse_name(name)


def parse_name(text: str) -> Selected:
    """Return the Model and the adapter of `NAME` or `NAME:ADAPTER`. Raises ModelNotSelected (404)."""
    name, separator, adapter = text.partition(":")
    if _NAME.fullmatch(name) is None or (separator and _ADAPTER.fullmatch(adapter) is None):
        raise not_found(text)
    return Selected(name, adapter)


def not_found(name: str) -> ModelNotSelected:
    """Return the error for a Model that is absent."""
    message = f"no model '{_printable(name)}': GET …/openai/v1/models lists the models"
    return ModelNotSelected(404, message, param="model", code=MODEL_NOT_FOUND)


def error_type(status: int) -> str:
    """Return OpenAI's type of an error with this HTTP status."""
    if status == _TOO_MANY:
        return "rate_limit_error"
    return "server_error" if status >= _SERVER_ERROR else _INVALID


def error_body(status: int, message: Any, *, param: Any = None, code: Any = None) -> Json:
    """Return the body of an error response in OpenAI's form."""
    return {"error": {"message": message, "type": error_type(status), "param": param, "code": code}}


def language_model(model: Object) -> LanguageModel | None:
    """Return the entry of a Model in the list, or None if it is not a language model or is being deleted."""
    spec, status = model.get("spec") or {}, model.get("status") or {}
    found = status.get("modelFormat") or spec.get("modelFormat")
    if is_deleting(model) or found not in LANGUAGE_FORMATS:
        return None
    adapters = (spec.get("llm") or {}).get("adapters") or ()
    names = (one.get("name") for one in adapters if isinstance(one, dict))
    return LanguageModel(
        namespace_of(model), name_of(model), _seconds(model), tuple(name for name in names if isinstance(name, str))
    )


def entries(model: LanguageModel) -> list[Json]:
    """Return the Model and its adapters as objects of OpenAI's API."""
    own: Json = {"id": model.name, "object": "model", "created": model.created, "owned_by": OWNER}
    return [own, *(own | {"id": f"{model.name}:{one}", "parent": model.name} for one in model.adapters)]


def model_list(models: Iterable[LanguageModel]) -> Json:
    """Return the list of `GET …/openai/v1/models`, sorted by name."""
    return {"object": "list", "data": [entry for model in sorted(models) for entry in entries(model)]}


_DECODER: Final = msgspec.json.Decoder(_Body)


def _may_repeat(body: bytes | bytearray) -> bool:
    return body.count(_MEMBER) > 1 or _ESCAPED_LETTER.search(body) is not None


def _refuse_two(body: bytes | bytearray) -> None:
    """Raise ModelNotSelected if the outer object has two members `model`, of which servers may use either."""
    last: list[tuple[str, Any]] = []

    def keep(pairs: list[tuple[str, Any]]) -> None:
        last[:] = pairs

    json.loads(body, object_pairs_hook=keep)  # the outer object is the last
    if sum(name == "model" for name, _ in last) > 1:
        raise ModelNotSelected(400, "the body has the member `model` twice", param="model")


def _seconds(model: Object) -> int:
    created = model["metadata"].get("creationTimestamp")
    return int(parse_timestamp(created).timestamp()) if created else 0


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text[:_SHOWN])


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else _printable(str(error))
