"""YAML and JSON from users and from the network."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base import objects as kinds
from clusters.net.strict_yaml import LARGEST_TEXT, LoadError, load_documents
from serving.types.loader import load_models, load_objects, read_models

MODEL = """
apiVersion: knodel.dev/v1alpha1
kind: Model
metadata: {name: magika}
spec: {storageUri: "file:///m"}
"""
POOL = """
apiVersion: knodel.dev/v1alpha1
kind: WarmPool
metadata: {name: small}
spec: {size: 3}
"""


def test_several_documents_are_taken_and_empty_ones_skipped() -> None:
    assert load_documents("a: 1\n---\n---\nb: [2]\n") == [{"a": 1}, {"b": [2]}]


def test_json_is_taken_as_well() -> None:
    assert load_documents('{"a": {"b": [1, null, true]}}') == [{"a": {"b": [1, None, True]}}]


def test_dates_stay_text() -> None:
    assert load_documents("version: 2026-01-01") == [{"version": "2026-01-01"}]


@pytest.mark.bad_input("command-yaml")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: {", "at the end: did not find"),
        ("a: [1\nb: 1", "(while parsing a flow sequence that begins in line 1)"),
        ("ä: 😀\nb:\n\t- d", r"line 3, column 1: found character '\t' that"),
        ("a: 1\na: 2", "the key 'a' is given twice"),
        ("a: !!python/object/apply:os.system [x]", "the tag"),
        ("a: !!binary aGk=", "the tag !!binary"),
        ("1: a", "put it in quotes"),
        ("a: *b", "undefined alias"),
        ("[" * 200 + "]" * 200, "nested"),
        ("a: \x00", "not allowed"),
        ("a: &x {b: *x}", "'x' contains itself"),
        ("a: &x [1, *x]", "'x' contains itself"),
    ],
)
def test_what_json_cannot_say_is_refused_with_the_place(text: str, words: str) -> None:
    with pytest.raises(LoadError, match=r"model\.yaml: ") as caught:
        load_documents(text, "model.yaml")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.bad_input("command-yaml")
def test_a_billion_laughs_is_cut_off() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    with pytest.raises(LoadError, match="more than 100 aliases"):
        load_documents("\n".join(["a0: &a0 [x]", *levels]))


@pytest.mark.bad_input("command-yaml")
@pytest.mark.parametrize(("levels", "each"), [(9, 10), (7, 8), (30, 3)])
def test_few_aliases_that_repeat_one_another_are_counted_for_all_that_they_repeat(levels: int, each: int) -> None:
    lines = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * each)}]" for n in range(1, levels + 1)]
    with pytest.raises(LoadError, match="more than 100000 values with the repetitions by aliases"):
        load_documents("\n".join(["a0: &a0 [x]", *lines]))


def test_aliases_that_nest_in_one_another_are_no_deeper_than_what_is_written_out() -> None:
    lines = [f"a{n}: &a{n} {'[' * 30}*a{n - 1}{']' * 30}" for n in range(1, 4)]
    with pytest.raises(LoadError, match="nested deeper than 64 levels with the repetitions"):
        load_documents("\n".join(["a0: &a0 [x]", *lines]))


@pytest.mark.bad_input("command-files")
def test_a_file_without_end_is_too_large() -> None:
    with pytest.raises(LoadError, match="larger than"):
        read_models(Path("/dev/zero"))


@pytest.mark.bad_input("command-files")
@pytest.mark.parametrize("before", [0, 1])
def test_a_file_that_is_too_large_is_told_so_even_where_the_cut_goes_through_a_character(
    tmp_path: Path, before: int
) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"a" * before + "\u00e9".encode() * LARGEST_TEXT)
    with pytest.raises(LoadError, match=r"large\.yaml is larger than"):
        read_models(large)


def test_a_few_aliases_are_fine() -> None:
    assert load_documents("a: &x {cpu: 1}\nb: *x") == [{"a": {"cpu": 1}, "b": {"cpu": 1}}]


@pytest.mark.bad_input("command-files")
def test_a_file_that_is_too_large_is_refused() -> None:
    with pytest.raises(LoadError, match="larger than"):
        load_documents("a" * (4 * 1024 * 1024))


@given(st.text(max_size=200))
def test_any_text_gives_documents_or_a_load_error(text: str) -> None:
    try:
        load_documents(text)
    except LoadError as error:
        assert "\n" not in str(error)


def test_models_are_found_in_documents_and_lists() -> None:
    listed = "apiVersion: v1\nkind: List\nitems:\n- " + MODEL.strip().replace("\n", "\n  ")
    assert [obj["metadata"]["name"] for obj in load_models(f"{MODEL}---\n{listed}")] == ["magika", "magika"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "contains no object"),
        ("[1]", "is not an object"),
        ("kind: Model", "apiVersion is missing"),
        ("apiVersion: v1\nkind: Pod", "metadata.name is missing"),
        ("apiVersion: v1\nkind: List\nitems: 1", "items must be a list"),
    ],
)
def test_what_is_no_object_is_refused(text: str, words: str) -> None:
    with pytest.raises(LoadError, match=words):
        load_objects(text)


def test_other_kinds_are_no_models() -> None:
    with pytest.raises(LoadError, match="Pod"):
        load_models("apiVersion: v1\nkind: Pod\nmetadata: {name: x}")
    with pytest.raises(LoadError, match=r"WarmPool .* is not accepted here: write a Model \(knodel.dev/v1alpha1\)"):
        load_models(POOL)


def test_warm_pools_are_taken_where_they_are_asked_for() -> None:
    found = load_models(f"{MODEL}---\n{POOL}", kinds=(kinds.MODEL, kinds.WARM_POOL))
    assert [obj["kind"] for obj in found] == ["Model", "WarmPool"]
    with pytest.raises(LoadError, match="write a Model or a WarmPool"):
        load_models("apiVersion: v1\nkind: Pod\nmetadata: {name: x}", kinds=(kinds.MODEL, kinds.WARM_POOL))


@pytest.mark.bad_input("command-files")
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="No such file"):
        read_models(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    with pytest.raises(LoadError, match="UTF-8"):
        read_models(tmp_path / "latin.yaml")
    (tmp_path / "model.yaml").write_text(MODEL)
    assert len(read_models(tmp_path / "model.yaml")) == 1
