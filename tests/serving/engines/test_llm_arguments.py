"""Arguments of a command line for language models."""

from __future__ import annotations

from serving.engines.base.llm_arguments import AdapterArgument, parse_adapter, parse_engine_args

DIGEST = "sha256:" + "0f" * 32


def test_the_parts_of_an_adapter_are_told_apart() -> None:
    assert parse_adapter(f"pirate=https://h/a?b=c#{DIGEST}") == AdapterArgument("pirate", "https://h/a?b=c", DIGEST)
    assert parse_adapter("pirate=./lora") == AdapterArgument("pirate", "./lora", "")


def test_a_value_may_be_empty_or_contain_the_separator() -> None:
    assert parse_engine_args(["a=", "b=c=d"]) == {"a": "", "b": "c=d"}
