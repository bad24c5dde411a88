"""A conversation with a language model on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import click

from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from serving.cli.base.output import PROGRESS_DELAY, ProgressLine, is_terminal
from serving.cli.context import Session
from serving.client.effects import Call, HttpAnswer, HttpRequest, Items, Tell, exchange, open_stream
from serving.client.inference import chat
from serving.client.inference.chat import Message
from serving.client.inference.ingress import IngressTarget
from serving.client.inference.token_times import TokenTimes

OK = 200
PROMPT = "> "
RESET, EXIT = "/reset", "/exit"
HINT: Final = f"{RESET} forgets what was said, Ctrl-C stops an answer, Ctrl-D or {EXIT} ends the conversation"


class Conversation:
    """The messages so far, and the model that answers; `parameters` are those of each request."""

    def __init__(
        self, session: Session, target: IngressTarget, name: str, adapter: str, system: str,
        parameters: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.output = session.output
        self._session = session
        self._target = target
        self._name = name
        self._adapter = adapter
        self._parameters = parameters
        self._first: list[Message] = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._first)

    def reset(self) -> None:
        """Forget all messages but the instructions."""
        self._messages = list(self._first)

    def completion(self, text: str) -> dict[str, Any]:
        """Return the whole response to a message. Raises the errors of `serving.client.inference.chat`."""
        request = self._request([*self._messages, *chat.messages_of(text)], stream=False)
        return self._session.driver.run(self._completion(request))

    def answer(self, text: str) -> None:
        """Print the answer to a message as it comes. What has come by an error or Ctrl-C is part of the conversation.

        Raises the errors of `serving.client.inference.chat`.
        """
        asked = [*self._messages, *chat.messages_of(text)]
        said, measure = "", Measure()
        progress = ProgressLine(delay=PROGRESS_DELAY)
        progress.show(f"{self._name}: waiting for the first token")
        try:
            with closing(self._chunks(asked)) as chunks:
                for chunk in chunks:
                    measure.observe(chunk)
                    if piece := chat.text_of(chunk):
                        if not said:
                            progress.clear()
                        said += piece
                        self.output.stream(piece)
        finally:
            progress.clear()
            if said:
                self._messages = [*asked, {"role": "assistant", "content": said}]
                if not said.endswith("\n"):
                    self.output.print("\n")
        if is_terminal(sys.stderr):
            click.echo(measure.line(), err=True)

    def _chunks(self, messages: list[Message]) -> Any:  # a generator of chunks
        return self._session.driver.iterate(self._streamed(self._request(messages, stream=True)))

    def _request(self, messages: list[Message], *, stream: bool) -> HttpRequest:
        body = chat.chat_body(self._name, self._adapter, messages, self._parameters, stream=stream)
        headers = {**self._target.headers, **chat.HEADERS}
        return HttpRequest(self._target.endpoint, "POST", chat.PATH, headers, body, chat.TIMEOUT)

    def _completion(self, request: HttpRequest) -> Call[dict[str, Any]]:
        yield Tell(f"{self._name}: waiting for its response")
        answer = yield from exchange(request)
        yield from self._check(answer)
        return chat.completion_from(self._name, answer)

    def _streamed(self, request: HttpRequest) -> Items[dict[str, Any]]:
        answer = yield from open_stream(request, chat.TIMEOUT)
        yield from self._check(answer)
        yield from chat.read_chunks(self._name, answer)

    def _check(self, answer: HttpAnswer) -> Call[None]:
        if answer.status != OK:
            session = self._session
            raise (yield from chat.chat_failure(session.ref, self._name, session.namespace, answer))


class Measure:
    """The number and the rate of the tokens of an answer."""

    def __init__(self) -> None:
        self._times = TokenTimes(time.monotonic())

    def observe(self, chunk: Message) -> None:
        """Count a chunk of the answer."""
        self._times.observe(chunk, time.monotonic())

    def line(self) -> str:
        """Return the numbers as a line."""
        times = self._times
        parts = [f"{times.count} token{'' if times.count == 1 else 's'}"]
        if times.to_first is not None:
            parts.append(f"the first after {times.to_first:.1f} s")
        if times.per_token is not None:
            parts.append(f"{1 / times.per_token:.1f} tokens/s")
        if times.reason == "length":
            parts.append("cut off at the limit of tokens")
        return f"({', '.join(parts)})"


def talk(conversation: Conversation) -> None:
    """Answer the lines that the user types, until the end of stdin or /exit. Errors are printed, and it goes on."""
    conversation.output.warn(HINT)
    for line in typed_lines():
        if line == EXIT:
            return
        if line == RESET:
            conversation.reset()
            conversation.output.warn("the conversation is empty")
            continue
        try:
            conversation.answer(line)
        except KeyboardInterrupt:
            conversation.output.warn("(stopped)")
        except KnodelError as error:
            conversation.output.warn(f"knodel: {one_line(str(error))}")


def typed_lines() -> Iterator[str]:
    """Yield the lines of the user that are not empty; Ctrl-C discards the one that is being typed."""
    while True:
        try:
            line = input(PROMPT if is_terminal(sys.stdout) else "").strip()
        except EOFError:
            click.echo(err=True)
            return
        except KeyboardInterrupt:
            click.echo(err=True)
            continue
        except UnicodeDecodeError:
            click.echo("the line is not UTF-8: type it again", err=True)
            continue
        if line:
            yield line
