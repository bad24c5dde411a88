"""Test `knodel chat`, with one message and as a conversation on a terminal."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from serving.cli.chat import PROMPT, Measure, typed_lines
from serving.cli.verbs.models import chat as verb
from serving.client.errors import UsageError
from serving.types.settings.state import Facts
from tests.serving.cli.conftest import Served, check
from tests.support.chat_server import ESCAPE, ChatServer, chat_server
from tests.support.terminal import Running, Shown, run_on_terminal, running

LIMIT = 30.0  # s


@pytest.fixture
def model(served: Served, state: Path) -> Iterator[ChatServer]:
    """Run a language model behind the gateway of the platform."""
    facts = Facts.read(state)
    assert facts is not None
    with chat_server() as server:
        replace(facts, gateway=urlsplit(server.url).netloc).write()
        yield server


async def test_one_message_has_one_answer(served: Served, model: ChatServer) -> None:
    done = await served.knodel("chat", "llm", "good morning")

    assert (done.code, done.out, done.err) == (0, "You said: goodmorning\n", "")
    assert model.paths == ["/openai/v1/chat/completions"]
    assert model.heads[0]["Host"] == "llm.default.localhost"
    assert model.requests[0]["messages"] == [{"role": "user", "content": "good morning"}]
    assert model.requests[0]["stream"] is True


async def test_options_are_parameters_of_the_request(served: Served, model: ChatServer) -> None:
    options = ("--system", "Be brief.", "--max-tokens", "9", "--temperature", "0", "--adapter", "legal")
    done = await served.knodel("chat", "llm", "hi", *options)

    assert done.code == 0, done.err
    [request] = model.requests
    assert (request["model"], request["max_tokens"], request["temperature"]) == ("llm:legal", 9, 0)
    assert [message["role"] for message in request["messages"]] == ["system", "user"]


async def test_a_text_on_stdin_is_the_message(served: Served, model: ChatServer) -> None:
    done = await served.knodel("chat", "llm", stdin="two\nlines\n")

    assert (done.code, done.out) == (0, "You said: two\nlines\n")  # the model's own line end is enough
    check(await served.knodel("chat", "llm", stdin=" \n"), 2, ["the message is empty"])


async def test_json_is_the_whole_response(served: Served, model: ChatServer) -> None:
    done = await served.knodel("chat", "llm", "a b", "--json")

    assert done.code == 0, done.err
    assert json.loads(done.out)["usage"]["completion_tokens"] == 3
    assert "stream" not in model.requests[0]


@pytest.mark.parametrize(("message", "code", "out", "words"), [
    ("break", 1, "You said: \n", ["the answer of model llm broke off", "send the message again", "`knodel logs llm`"]),
    ("fail", 1, "You said: \n", ["broke off (the device is lost)"]),
    ("long", 2, "", ["responded with 400: 9000 tokens are more than 8192: send a shorter conversation"]),
    ("ill", 1, "", ["responded with 500: out of memory: `knodel logs llm` shows the cause"]),
    ("busy", 1, "", ["responded with 503: all slots are busy (retry in 0 s)"]),
])  # fmt: skip
async def test_an_error_is_one_line_with_its_remedy(
    served: Served, model: ChatServer, message: str, code: int, out: str, words: list[str]
) -> None:
    done = await served.knodel("chat", "llm", message)

    assert done.out == out
    check(replace(done, out=""), code, words)
    if out != "":
        return
    model.was_busy = False
    check(await served.knodel("chat", "llm", message, "--json"), code, words)


async def test_an_unknown_adapter_and_a_model_that_does_not_chat_are_named(served: Served, model: ChatServer) -> None:
    await served.deploy("llm")
    await served.set_status("llm", {"conditions": [{"type": "Ready", "status": "True"}]})

    words = ["no model llm:nope", "`knodel get llm -o yaml` shows its adapters"]
    check(await served.knodel("chat", "llm", "hi", "--adapter", "nope"), 3, words)
    model.has_chats = False
    words = ["it does not chat", "`knodel predict llm --example`"]
    check(await served.knodel("chat", "llm", "hi"), 3, words)


async def test_a_model_that_does_not_exist_or_is_not_ready_is_named(served: Served, model: ChatServer) -> None:
    model.has_chats = False
    check(await served.knodel("chat", "nobody", "hi"), 3, ["model nobody not found in namespace default"])
    check(await served.knodel("chat", "nobody", "hi", "--tag", "blue"), 3, ["model nobody not found"])
    await served.deploy("slow")
    check(await served.knodel("chat", "slow", "hi"), 4, ["model slow is not ready"])


async def test_a_pipe_gets_the_answer_unchanged_and_a_terminal_harmless(served: Served, model: ChatServer) -> None:
    assert (await served.knodel("chat", "llm", "escape")).out == f"{ESCAPE}\n"

    shown = await asyncio.to_thread(run_on_terminal, "chat", "llm", "escape")

    assert "\\x1b[2Jred\\x1b]0;title\\x07\ttab\u202fé" in shown.raw
    assert "\x1b[2J" not in shown.raw
    assert shown.lines[1] == "next"


async def test_a_terminal_shows_the_rate_and_whether_the_answer_was_cut_off(served: Served, model: ChatServer) -> None:
    shown = await asyncio.to_thread(run_on_terminal, "chat", "llm", "cut")

    assert shown.code == 0
    assert shown.lines[0] == "You said: cut"
    assert shown.lines[1].startswith("(2 tokens, the first after ")
    assert shown.lines[1].endswith("tokens/s, cut off at the limit of tokens)")


def test_without_a_usage_the_texts_are_counted() -> None:
    measure = Measure()
    assert measure.line() == "(0 tokens)"
    measure.observe({"choices": [{"delta": {"content": "a"}}]})
    assert measure.line().startswith("(1 token, the first after 0.0 s")


def say(here: Running, line: str, answer: str) -> None:
    """Type a line, and wait for its answer and the next prompt: a key before it would not reach the line editor."""
    here.type(f"{line}\n")
    here.until(PROMPT, after=answer)


async def test_a_conversation_remembers_what_was_said(served: Served, model: ChatServer) -> None:
    def converse() -> Shown:
        with running("chat", "llm", "--system", "Be brief.", tty=True, typed=True) as here:
            here.until(PROMPT)
            say(here, "first", "You said: first")
            say(here, "\n/unknown word", "/unknownword")  # an empty line is nothing; a message may begin with a slash
            say(here, "/reset", "the conversation is empty")
            say(here, "third", "You said: third")
            say(here, "\x1b[A again", "You said: thirdagain")  # the line before is in the history
            here.type("/exit\n")
            return here.end()

    shown = await asyncio.to_thread(converse)

    assert shown.code == 0
    said = [[message["content"] for message in request["messages"]] for request in model.requests]
    assert said == [
        ["Be brief.", "first"],
        ["Be brief.", "first", "You said: first", "/unknown word"],
        ["Be brief.", "third"],
        ["Be brief.", "third", "You said: third", "third again"],
    ]


async def test_ctrl_c_stops_an_answer_and_ctrl_d_ends_the_conversation(served: Served, model: ChatServer) -> None:
    def converse() -> Shown:
        with running("chat", "llm", tty=True, typed=True) as here:
            here.until(PROMPT)
            here.type("endless\n")
            here.until("word word")
            here.press_ctrl_c()
            here.until(PROMPT, after="(stopped)")
            say(here, "ill", "responded with 500: out of memory")
            say(here, "more", "You said: more")
            here.type("\x04")
            return here.end()

    shown = await asyncio.to_thread(converse)

    assert shown.code == 0
    assert "Traceback" not in shown.raw
    assert model.left.wait(LIMIT)
    roles = [message["role"] for message in model.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "user"]  # with the part of the stopped answer, without what has failed
    assert model.requests[-1]["messages"][1]["content"].startswith("You said: endlessword word")


def test_ctrl_c_discards_the_line_that_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    typed: list[object] = [
        KeyboardInterrupt(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), " ", " text ", EOFError(), "later",
    ]  # fmt: skip

    def read(prompt: str) -> object:
        found = typed.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr("builtins.input", read)
    assert list(typed_lines()) == ["text"]
    assert typed == ["later"]


async def test_ctrl_c_ends_the_answer_to_one_message(served: Served, model: ChatServer) -> None:
    def interrupt() -> Shown:
        with running("chat", "llm", "endless", tty=True) as here:
            here.until("word word")
            return here.interrupt()

    assert (await asyncio.to_thread(interrupt)).code == 130
    assert model.left.wait(LIMIT)


async def test_json_is_not_for_a_conversation(served: Served, model: ChatServer) -> None:
    def converse() -> Shown:
        with running("chat", "llm", "--json", tty=True, typed=True) as here:
            return here.end()

    shown = await asyncio.to_thread(converse)
    assert (shown.code, model.requests) == (2, [])
    assert "--json prints one response" in shown.raw


def test_stdin_is_utf8_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def stdin(content: bytes) -> Any:
        buffer = type("Buffer", (), {"read": lambda _, size: content[:size]})()
        return type("Stdin", (), {"buffer": buffer, "isatty": lambda _: False})()

    monkeypatch.setattr(verb, "LARGEST", 4)
    for content, words in ((b"\xff", "is not UTF-8"), (b"12345", "is larger than 4")):
        monkeypatch.setattr(sys, "stdin", stdin(content))
        with pytest.raises(UsageError, match=words):
            verb._piped()
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="stdin is closed"):
        verb._piped()
