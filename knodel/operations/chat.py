"""The operation `chat`: its whole answer, or the answer as a stream of texts."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, overload

from knodel.inference.sending import Destination, error_of, send
from knodel.operations.core import ClientCore, check_name, check_timeout
from knodel.operations.inference import REVISION
from knodel.results.chat import Chat
from serving.client.effects import Call, HttpAnswer, HttpRequest, Item, Items, each, exchange, open_stream
from serving.client.inference import chat as protocol
from serving.client.inference.chat import TIMEOUT, Message

Messages: TypeAlias = str | Sequence[Message]
"""A text of the user, or messages of OpenAI's protocol."""


class _Request(NamedTuple):
    """A chat: the model with its limit in seconds, and the body of the request."""

    to: Destination
    body: bytes


@overload
def chat(
    core: ClientCore, name: str, messages: Messages, *, stream: Literal[False] = False, adapter: str = "",
    tag: str | None = None, timeout: float = TIMEOUT, **parameters: Any,
) -> Call[Chat]: ...  # fmt: skip


@overload
def chat(
    core: ClientCore, name: str, messages: Messages, *, stream: Literal[True], adapter: str = "",
    tag: str | None = None, timeout: float = TIMEOUT, **parameters: Any,
) -> Items[str]: ...  # fmt: skip


def chat(
    core: ClientCore,
    name: str,
    messages: Messages,
    *,
    stream: bool = False,
    adapter: str = "",
    tag: str | None = None,
    timeout: float = TIMEOUT,
    **parameters: Any,
) -> Call[Chat] | Items[str]:
    """Send a chat to a language model and return its answer; with `stream`, an iterator over the texts as they come.

    `messages` is a text of the user, or a list of messages of OpenAI's protocol. `adapter` selects one of the model's
    adapters, `tag` a version. Other arguments are parameters of the protocol, such as `max_tokens` and `temperature`.
    `timeout` limits in seconds the wait for the whole answer, with `stream` that for each text. An iterator that is
    left ends the answer.

    A request is sent again only if it certainly was not executed, as by `predict`. Raises Invalid for other messages or
    parameters, NotFound, ModelError for the error of a model, Unreachable for an answer that breaks off.

    Example:
        print(client.chat("llm", "What is a model server?", max_tokens=100).text)
        for text in client.chat("llm", [{"role": "user", "content": "Hello"}], stream=True):
            print(text, end="", flush=True)
    """
    to = Destination(check_name(name), "" if tag is None else check_name(tag, "tag"), check_timeout(timeout))
    body = protocol.chat_body(name, adapter, protocol.messages_of(messages), _given(parameters), stream=stream)
    request = _Request(to, body)
    return _texts(core, request) if stream else _answer(core, request)


def _given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters without those that are None: OpenAI's servers refuse some of them."""
    return {name: value for name, value in parameters.items() if value is not None}


def _answer(core: ClientCore, request: _Request) -> Call[Chat]:
    answer = yield from _send(core, request, stream=False)
    name = request.to.name
    found = protocol.completion_from(name, answer)
    return Chat(name, answer.headers.get(REVISION, ""), protocol.text_of(found), protocol.finish_reason_of(found),
                protocol.usage_of(found), found)  # fmt: skip


def _texts(core: ClientCore, request: _Request) -> Items[str]:
    answer = yield from _send(core, request, stream=True)

    def show(chunk: Message) -> Generator[Item[str], None, bool]:
        if text := protocol.text_of(chunk):
            yield Item(text)
        return False

    yield from each(protocol.read_chunks(request.to.name, answer), show)


def _send(core: ClientCore, request: _Request, *, stream: bool) -> Call[HttpAnswer]:
    """Return the response of the model. Raises the error of a response with a status other than 200."""

    def perform(made: HttpRequest) -> Call[HttpAnswer]:
        return (yield from (open_stream(made, request.to.timeout) if stream else exchange(made)))

    answer = yield from send(core, request.to, "POST", protocol.PATH, protocol.HEADERS, request.body, perform)
    if answer.status != 200:
        raise (yield from error_of(core, request.to, answer, protocol.chat_failure))
    return answer
