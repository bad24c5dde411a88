"""The address of all language models of a namespace in OpenAI's API: the selected Model, the list, the errors. Pure.

    /openai/v1/…, /namespaces/NAMESPACE/openai/v1/…     the member `model` of the body is NAME or NAME:ADAPTER

The gateway selects the Model by a Lua script (`clusters.gateway.openai_script`), the router on Kubernetes by `select`.
Both accept and refuse the same bodies, except that the gateway leaves errors inside nested values to the model server.
Form of errors and lists: https://platform.openai.com/docs/api-reference.
"""

from __future__ import annotations

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
"""Members of the outer object of a body. OpenAI's API has some 50; each costs as much time as 100 bytes."""
MODEL_NOT_FOUND: Final = "model_not_found"
NO_MODEL: Final = "missing_required_parameter"
OWNER: Final = "knodel"

_INVALID: Final = "invalid_request_error"
_NAME: Final = re.compile(r"[a-z0-9-]{1,63}")
_ADAPTER: Final = re.compile(r"[^\x00-\x1f]{1,253}")
_MODEL: Final = "model"
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


class _Member:
    """The name of a member of the outer object. Equal names are distinct keys, so a dictionary keeps them all."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def select(body: bytes | bytearray) -> Selected:
    """Return the Model that the body of a request selects.

    Raises ModelNotSelected: 400 for a body that is no JSON object, for two members `model` and for none; 404 for a
    value that is not the name of a Model.
    """
    values = [value for name, value in _members(body) if name == _MODEL]
    if len(values) > 1:  # parsers may use either
        raise ModelNotSelected(400, f"the body has the member `{_MODEL}` twice", param=_MODEL)
    text = bytes(values[0]) if values else b""
    if not text.startswith(b'"'):
        message = f"the body needs the member `{_MODEL}`: the name of a model"
        raise ModelNotSelected(400, message, param=_MODEL, code=NO_MODEL)
    try:
        return parse_name(msgspec.json.decode(text))
    except (msgspec.MsgspecError, ValueError) as error:
        raise _no_object(error) from error


def _members(body: bytes | bytearray) -> list[tuple[str, msgspec.Raw]]:
    """Return the members of the outer object, without the cost of decoding their values."""
    seen = 0

    def member(kind: type, name: str) -> _Member:
        nonlocal seen
        seen += 1
        if seen > MOST_MEMBERS:
            raise ModelNotSelected(400, f"the body has more than {MOST_MEMBERS} members")
        return _Member(name)

    try:
        found = msgspec.json.Decoder(dict[_Member, msgspec.Raw], dec_hook=member).decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _no_object(error) from error
    return [(key.name, value) for key, value in found.items()]


def _no_object(error: Exception) -> ModelNotSelected:
    reason = "nested too deeply" if isinstance(error, RecursionError) else _printable(str(error))
    return ModelNotSelected(400, f"the body is not a JSON object: {reason}")


def parse_name(text: str) -> Selected:
    """Return the Model and the adapter of `NAME` or `NAME:ADAPTER`. Raises ModelNotSelected (404)."""
    name, separator, adapter = text.partition(":")
    if _NAME.fullmatch(name) is None or (separator and _ADAPTER.fullmatch(adapter) is None):
        raise not_found(text)
    return Selected(name, adapter)


def not_found(name: str) -> ModelNotSelected:
    """Return the error for a Model that is absent."""
    message = f"no model '{_printable(name)}': GET …/openai/v1/models lists the models"
    return ModelNotSelected(404, message, param=_MODEL, code=MODEL_NOT_FOUND)


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


def _seconds(model: Object) -> int:
    created = model["metadata"].get("creationTimestamp")
    return int(parse_timestamp(created).timestamp()) if created else 0


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text[:_SHOWN])
