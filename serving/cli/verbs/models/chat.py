"""`knodel chat`."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import click

from clusters.base.sizes import format_size
from serving.cli.chat import Conversation, talk
from serving.cli.context import Session, verb
from serving.cli.entrance import absence_explained, check_names
from serving.cli.names import model_name, tags
from serving.client.errors import UsageError
from serving.client.inference.ingress import ingress_target

LARGEST = 16 * 1024 * 1024  # bytes of a message on stdin; no model reads as much


@verb(
    "chat",
    prints=False,
    examples=[
        ("Chat on the terminal", "knodel chat llm --system 'Answer in one sentence.'"),
        ("Print one answer", "knodel chat llm 'What is a model server?' --max-tokens 100"),
        ("Print the whole response of an adapter", "knodel chat llm 'Is this legal?' --adapter legal --json"),
    ],
)
@model_name()
@click.argument("message", required=False)
@click.option("--system", metavar="TEXT", default="", help="Instructions that precede the conversation.")
@click.option("--max-tokens", metavar="N", type=click.IntRange(min=1), help="Maximum number of tokens of an answer.")
@click.option("--temperature", metavar="X", type=click.FloatRange(min=0),
              help="Randomness of the answers: 0 is the most likely text.")  # fmt: skip
@click.option("--adapter", metavar="NAME", default="", help="Chat with this adapter of the model.")
@click.option("--tag", metavar="TAG", default="", shell_complete=tags, help="Chat with the version with this tag.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole response as JSON.")
def command(
    session: Session, name: str, message: str | None, system: str, max_tokens: int | None, temperature: float | None,
    adapter: str, tag: str, as_json: bool,
) -> None:  # fmt: skip
    """Chat with the language model NAME: one answer to MESSAGE or to a text on stdin, else a conversation.

    In a conversation, Ctrl-C stops an answer, and Ctrl-D or /exit ends the conversation. /reset forgets what was said.
    """
    check_names(name, tag)
    text = message if message is not None else _piped()
    if text is not None and not text.strip():
        raise UsageError("the message is empty: give MESSAGE, or a text on stdin")
    if as_json and text is None:
        raise UsageError("--json prints one response: give MESSAGE, or a text on stdin")
    with absence_explained(session, name):
        target = session.driver.run(ingress_target(session.ref, name, session.namespace, tag))
    given: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    parameters = {parameter: value for parameter, value in given.items() if value is not None}
    conversation = Conversation(session, target, name, adapter, system, parameters)
    if text is None:
        with suppress(ImportError):  # with it, `input` has line editing and a history
            import readline  # noqa: F401
        talk(conversation)
    elif as_json:
        session.output.value(conversation.completion(text))
    else:
        conversation.answer(text)


def _piped() -> str | None:
    """Return the text on stdin; None if stdin is a terminal. Raises UsageError."""
    if sys.stdin is None:
        raise UsageError("stdin is closed: give MESSAGE")
    if sys.stdin.isatty():
        return None
    content = sys.stdin.buffer.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise UsageError(f"the text on stdin is larger than {format_size(LARGEST)}: send a shorter one")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the text on stdin is not UTF-8 ({error.reason}): convert it") from error
