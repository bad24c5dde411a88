"""The paths of OpenAI's and Anthropic's APIs."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "/openai"
"""Each path is served below this prefix too, as KServe's are."""
MESSAGES: Final = "/v1/messages"
"""Anthropic's path; errors have its form there."""
PATHS: Final = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    MESSAGES,
    f"{MESSAGES}/count_tokens",
    "/v1/rerank",
)
"""Paths that an engine may have."""
GENERATING: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", MESSAGES})
"""Paths whose answers are made token by token; the caller determines how many."""
SEVERAL_ANSWERS: Final = frozenset({"/v1/chat/completions", "/v1/completions"})
"""Paths whose member `n` is the number of answers."""
