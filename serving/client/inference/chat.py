"""Chats with a language model by OpenAI's protocol: requests, streams of chunks, and errors.

A response is a `chat.completion` object, or a stream of server-sent events: lines `data: CHUNK` with a
`chat.completion.chunk` each, and `data: [DONE]` at the end. An error after the first event is an event as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from serving.client.effects import Call, HttpAnswer, Item, Items, read_line
from serving.client.errors import ClientError, ModelError, Unreachable, UsageError
from serving.client.http import FOREIGN
from serving.client.inference.failures import failure_of, reason_of
from serving.client.platform_ref import PlatformRef

PATH: Final = "/openai/v1/chat/completions"
TIMEOUT: Final = 610.0
"""s until the first chunk, and between two; a little above the maximum timeout of a Model."""
HEADERS: Final = {"Content-Type": "application/json"}
Message = Mapping[str, Any]

_DATA, _DONE = b"data:", b"[DONE]"
_OWN_FIELDS = ("model", "messages", "stream")
_NO_PATH = (404, 405)  # of a server that knows no chats
_TOO_LONG = ("context_length_exceeded", "exceed_context_size_error")
_NO_MODEL = "model_not_found"
_SERVER_ERROR = 500


def messages_of(given: str | Sequence[Message]) -> list[Message]:
    """Return the messages of a chat: a text is one message of the user. Raises UsageError."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    is_list = isinstance(given, Sequence) and all(isinstance(one, Mapping) and "role" in one for one in given)
    if not is_list or not given:
        raise UsageError('messages are neither a text nor a list such as [{"role": "user", "content": "Hello"}]')
    return list(given)


def chat_body(
    name: str, adapter: str, messages: Sequence[Message], parameters: Mapping[str, Any], *, stream: bool
) -> bytes:
    """Return the body of a request to the model, or to its adapter. Raises UsageError for what is not JSON. Pure."""
    if own := [field for field in _OWN_FIELDS if field in parameters]:
        raise UsageError(f"{own[0]} is not a parameter of a chat: it follows from the other arguments")
    body: dict[str, Any] = {"model": f"{name}:{adapter}" if adapter else name, "messages": list(messages)}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    try:
        return json.dumps(body | dict(parameters), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the chat is not JSON ({error}): give numbers, UTF-8 text, lists and dicts") from error


def completion_from(name: str, answer: HttpAnswer) -> dict[str, Any]:
    """Return the `chat.completion` object of a response. Raises ClientError."""
    found = _json(answer.content)
    if not isinstance(found, dict) or not _choice(found):
        raise ClientError(f"the response of model {name} is not a chat completion: {FOREIGN}")
    return found


def read_chunks(name: str, answer: HttpAnswer) -> Items[dict[str, Any]]:
    """Yield the chunks of a streamed response as they come.

    Raises ModelError for an error in the stream, Unreachable for a stream that breaks off. The stream is read to its
    end, so that the server does not take the caller for one who has left.
    """
    is_complete = False
    try:
        while line := (yield from read_line(answer.stream)):
            if not line.startswith(_DATA):
                continue  # comments, names of events, and the empty lines between them
            data = line.removeprefix(_DATA).strip()
            if data == _DONE:
                is_complete = True
                continue
            chunk = _chunk(name, data)
            is_complete = is_complete or bool(finish_reason_of(chunk))
            yield Item(chunk)
    except Unreachable as error:
        if not is_complete:
            raise Unreachable(_broken_off(name, str(error))) from error
    if not is_complete:
        raise Unreachable(_broken_off(name, "its stream has no end"))


def text_of(found: Mapping[str, Any]) -> str:
    """Return the text of a completion or a chunk; empty without one. Pure."""
    choice = _choice(found)
    said = choice.get("message") or choice.get("delta")
    content = said.get("content") if isinstance(said, dict) else None
    return content if isinstance(content, str) else ""


def finish_reason_of(found: Mapping[str, Any]) -> str:
    """Return why the model stopped, such as `stop` or `length`; empty if it has not. Pure."""
    return str(_choice(found).get("finish_reason") or "")


def usage_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of tokens, such as `completion_tokens`; empty if the server does not report them. Pure."""
    usage = found.get("usage")
    return usage if isinstance(usage, dict) else {}


def chat_failure(ref: PlatformRef | None, name: str, namespace: str, answer: HttpAnswer) -> Call[ClientError]:
    """Return the error for a response with a status other than 200, with its remedy."""
    error = yield from failure_of(ref, name, namespace, answer)
    is_of_model = str(error).startswith(f"model {name} responded with ")
    if is_of_model and (remedy := _remedy(name, answer)):
        error.args = (f"{error}: {remedy}",)
    return error


def _remedy(name: str, answer: HttpAnswer) -> str:
    found = _json(answer.content)
    error = found.get("error") if isinstance(found, dict) else None
    kinds = {str(error.get(field)) for field in ("code", "type")} if isinstance(error, dict) else set()
    if _NO_MODEL in kinds:
        return f"`knodel get {name} -o yaml` shows its adapters; give one with --adapter NAME, or none"
    if kinds.intersection(_TOO_LONG):
        return "send a shorter conversation"
    if answer.status in _NO_PATH:
        return f"it does not chat; `knodel predict {name} --example` sends an inference request"
    return f"`knodel logs {name}` shows the cause" if answer.status == _SERVER_ERROR else ""


def _chunk(name: str, data: bytes) -> dict[str, Any]:
    """Return the chunk of an event. Raises ModelError for an error, ClientError for anything else."""
    found = _json(data)
    if not isinstance(found, dict):
        raise ClientError(f"an event in the response of model {name} is not a JSON object: {FOREIGN}")
    if error := found.get("error"):
        code = error.get("code") if isinstance(error, dict) else None
        reason, request_id = reason_of(data)
        raise ModelError(_broken_off(name, reason), code if isinstance(code, int) else _SERVER_ERROR, request_id)
    return found


def _broken_off(name: str, reason: str) -> str:
    return f"the answer of model {name} broke off ({reason}): send the message again; `knodel logs {name}` shows more"


def _choice(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first choice; the last chunk of a stream, which has the usage, has none."""
    choices = found.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _json(content: bytes) -> Any:
    """Return a JSON value; None for what is not JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
