"""The list of adapters that changes while a replica runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serving.engines.base.llm_arguments import ADAPTERS_FILE, BadLlmOptions
from serving.modelserver.base.adapter_list import AdapterListFile, changes_to, read_list
from serving.modelserver.base.llm import AdapterSource

A = AdapterSource("a", "s3://box/a")
A2 = AdapterSource("a", "s3://box/a", "sha256:" + "2" * 64)
B = AdapterSource("b", "s3://box/b")


@pytest.mark.parametrize(
    ("wanted", "served", "load", "remove"),
    [
        ([], {}, [], []),
        ([A, B], {}, [A, B], []),
        ([A, B], {"a": A}, [B], []),
        ([B], {"a": A}, [B], ["a"]),
        ([], {"a": A, "b": B}, [], ["a", "b"]),
        ([A2], {"a": A}, [A2], []),
        ([A, B], {"b": B, "a": A}, [], []),
    ],
)
def test_the_changes_to_a_list(
    wanted: list[AdapterSource], served: dict[str, AdapterSource], load: list[AdapterSource], remove: list[str]
) -> None:
    changes = changes_to(wanted, served)
    assert (list(changes.load), list(changes.remove)) == (load, remove)


def listed(*adapters: dict[str, Any], revisions: dict[str, Any] | None = None) -> bytes:
    return json.dumps({"default": {"id": "1", "adapters": adapters}, "revisions": revisions or {}}).encode()


ONE = {"name": "a", "uri": "s3://box/a"}


def test_a_former_version_keeps_its_list() -> None:
    content = listed(ONE, revisions={"m-00001": {"id": "0", "adapters": []}})
    assert read_list(content, "m-00002").adapters == (A,)
    former = read_list(content, "m-00001")
    assert (former.id, former.adapters) == ("0", ())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "list of adapters is invalid"),
        (b"{}", "list of adapters is invalid"),
        (listed({"name": "a"}), "list of adapters is invalid"),
        (listed({"name": "A", "uri": "s3://box/a"}), "adapter 'A' is not a name"),
        (listed(ONE, ONE), "adapter 'a' is given 2 times"),
    ],
)
def test_a_bad_list_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(BadLlmOptions, match=words):
        read_list(content, "m-00001")


def test_a_file_is_read_again_once_it_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / ADAPTERS_FILE
    path.write_bytes(listed(ONE))
    file = AdapterListFile(tmp_path, "m-00001")
    first = file.read()
    assert first is not None and first.adapters == (A,)
    assert file.read() is None
    (tmp_path / "new").write_bytes(listed())
    (tmp_path / "new").replace(path)
    second = file.read()
    assert second is not None and second.adapters == ()
