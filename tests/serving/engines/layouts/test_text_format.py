"""The reader of the text format, against the one of Google's library with Triton's own schema."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from tritonclient.grpc.model_config_pb2 import ModelConfig

from serving.engines.layouts.text_format import BadText, Bare, parse

TEXTS = {
    "scalars": 'name: "m" max_batch_size: 8',
    "lists": 'input [ { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] }, { name: "y" dims: 4 dims: 5 } ]',
    "one by one": 'input { name: "x" } input < name: "y" > output: { name: "z" }',
    "separators": 'name: "m"; platform: "p", max_batch_size: 1,',
    "comments": "# before\nmax_batch_size: 3 # behind\n#last",
    "strings": 'name: \'a\' "b"\n  \'c\' platform: "tab\\t \\"quoted\\" \\x41\\102 \\u00e4 # no comment"',
    "numbers": "max_batch_size: 0x10 dynamic_batching { preferred_batch_size: [ 010, 4 ] }",
    "empty messages": "dynamic_batching { } version_policy: { all { } } instance_group [ ]",
    "maps": 'parameters { key: "a" value { string_value: "1" } } parameters { key: "b" value: { string_value: "2" } }',
    "minus": "input { dims: -1 }",
    "floats": "sequence_batching { direct { minimum_slot_utilization: 2.5e-1 } }",
    "nothing": " \n",
}


def flat(message: Any) -> dict[str, list[Any]]:
    """Return a message of Google's library in the form of ours."""
    made: dict[str, list[Any]] = {}
    for field, content in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entries = [{"key": [key], "value": [flat(content[key])]} for key in sorted(content)]
            made[field.name] = entries
            continue
        values = list(content) if field.is_repeated else [content]
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            made[field.name] = [flat(one) for one in values]
        elif field.type == FieldDescriptor.TYPE_ENUM:
            made[field.name] = [field.enum_type.values_by_number[one].name for one in values]
        else:
            made[field.name] = values
    return made


def ours(value: Any) -> Any:
    """Return a value of ours with numbers as such."""
    if isinstance(value, dict):
        return {name: [ours(one) for one in values] for name, values in value.items() if values}
    if not isinstance(value, Bare) or value[:1].isalpha():
        return value
    if value.startswith("0") and value.isdigit():
        return int(value, 8)
    return float(value) if "." in value else int(value, 0)


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_read_as_by_googles_library(name: str) -> None:
    assert ours(parse(TEXTS[name])) == flat(text_format.Parse(TEXTS[name], ModelConfig()))


BROKEN = [
    ("input {", "line 1: expected a field name, not the end of the file"),
    ("\nname: }", "line 2: expected a value, not '}'"),
    ("name 'x'", "line 1: expected ':' or '{', not"),
    ("name: 'x", "line 1: unexpected"),
    ("dims: [1 2]", "line 1: expected ',', not '2'"),
    ("}", "line 1: expected a field name, not '}'"),
    ("8: 8", "line 1: '8' is not a field name"),
    ("name: '\\q'", "line 1: invalid escape"),
    ("name: '\\xff'", "line 1: a string is not UTF-8"),
    ("name: '\\U00110000'", "line 1: invalid escape"),
    ("a {" * 40, "line 1: more than 32 nested messages"),
]


@pytest.mark.bad_input("artifact-description")
@pytest.mark.parametrize(("text", "reason"), BROKEN)
def test_a_broken_text_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(BadText) as refused:
        parse(text)
    assert str(refused.value).startswith(reason)
    with pytest.raises((text_format.ParseError, RecursionError, DeprecationWarning)):
        text_format.Parse(text, ModelConfig())
