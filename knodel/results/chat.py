"""The answer of a language model to a chat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from knodel.results.displayed import Displayed


@dataclass(frozen=True, repr=False)
class Chat(Displayed):
    """The answer of a language model to a chat; as a string it is its text.

    `finish_reason` is why the model stopped: `stop` at its end, `length` at the limit of tokens. `usage` has numbers of
    tokens, such as `completion_tokens`; it is empty if the server does not report them. `revision` is the version that
    answered, empty if the server does not report it. `raw` is the whole `chat.completion` object of OpenAI's protocol.

    Example:
        answer = client.chat("llm", "What is a model server?")
        print(answer.text, answer.usage["completion_tokens"])
    """

    model: str
    revision: str
    text: str
    finish_reason: str
    usage: Mapping[str, Any] = field(default_factory=dict, hash=False)
    raw: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.text
