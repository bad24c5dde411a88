"""Validation of Secrets: keys become names of files, so no key may refer to another folder."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.objects import SECRET
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.secrets import (
    LARGEST,
    is_key,
    merge_string_data,
    validate_config_map,
    validate_secret,
    values_of,
)


def secret(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, **fields}


def paths(**fields: Any) -> list[str]:
    return [error.path for error in validate_secret(None, secret(**fields))]


def test_values_are_base64_or_plain_and_the_plain_ones_go_over_the_others() -> None:
    obj = secret(data={"a": "/wA=", "b": "Yg=="}, stringData={"b": "ä"}, type="Opaque", immutable=False)

    assert validate_secret(None, obj) == ()
    assert values_of(obj) == {"a": b"\xff\x00", "b": "ä".encode()}
    assert values_of(secret(data=None)) == {}
    assert values_of(secret(data={"a": "Y\nQ=="})) == {"a": b"a"}


@pytest.mark.bad_input("object-others")
@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"data": []}, "data"),
        ({"data": {"a": "no base64!"}}, "data[a]"),
        ({"data": {"a": "größe"}}, "data[a]"),
        ({"data": {"a": 7}}, "data[a]"),
        ({"data": {"a": None}}, "data[a]"),
        ({"stringData": {"a": b"x"}}, "stringData[a]"),
        ({"type": 7}, "type"),
        ({"spec": {}}, "spec"),
        ({"stringData": {"a": "x" * (LARGEST + 1)}}, "data"),
    ],
)
def test_what_is_none_is_refused_by_its_field(fields: dict[str, Any], path: str) -> None:
    assert paths(**fields) == [path]


@pytest.mark.parametrize("key", ["", ".", "..", "../x", "..x", "a/b", "a\n", "ä", "a" * 254, "a\0"])
def test_a_key_that_is_no_name_of_a_file_is_refused(key: str) -> None:
    assert paths(stringData={key: "x"}) == [f"stringData[{key[:40]}]"]


@given(st.text(st.sampled_from("ab.-_/\\\0\n "), max_size=5))
def test_no_key_leads_out_of_its_folder(key: str) -> None:
    if is_key(key):
        assert "/" not in key
        assert key not in ("", ".", "..")
        assert key.isprintable()


def test_one_that_is_immutable_stays_as_it_is() -> None:
    old = secret(data={"a": "YQ=="}, immutable=True)

    assert [error.path for error in validate_secret(old, secret(data={"a": "Yg=="}, immutable=True))] == ["data"]
    assert [error.path for error in validate_secret(old, secret(data={"a": "YQ=="}))] == ["data"]
    assert validate_secret(old, {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}) == ()


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({}, []),
        ({"data": {"a": "1"}, "binaryData": {"b": "MQ=="}}, []),
        ({"data": {"a": 1}}, ["data[a]"]),
        ({"data": {"a b": "1"}}, ["data[a b]"]),
        ({"binaryData": {"a": "%"}}, ["binaryData[a]"]),
        ({"data": {"a": "1"}, "binaryData": {"a": "MQ=="}}, ["binaryData[a]"]),
        ({"data": {"a": "x" * (LARGEST + 1)}}, [""]),
        ({"spec": {}}, ["spec"]),
    ],
)
def test_each_fault_of_a_config_map_is_named(fields: dict[str, Any], paths: list[str]) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, **fields}
    assert [error.path for error in validate_config_map(None, obj)] == paths


def test_an_immutable_config_map_keeps_its_data() -> None:
    old = {"metadata": {"name": "c"}, "data": {"a": "1"}, "immutable": True}
    assert [error.path for error in validate_config_map(old, {**old, "data": {"a": "2"}})] == ["data"]
    assert validate_config_map(old, {**old, "metadata": {"name": "c", "labels": {"a": "b"}}}) == ()


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"data": {"a": "MQ=="}}, {"data": {"a": "MQ=="}}),
        ({"stringData": {"a": "2", "b": "3"}, "data": {"a": "MQ=="}}, {"data": {"a": "Mg==", "b": "Mw=="}}),
        ({"stringData": {}}, {}),
        ({"stringData": {"a": 1}}, {"stringData": {"a": 1}}),
        ({"stringData": "a"}, {"stringData": "a"}),
        ({"stringData": {"a": "1"}, "data": [1]}, {"stringData": {"a": "1"}, "data": [1]}),
    ],
)
def test_string_data_is_merged_into_data(given: dict[str, Any], stored: dict[str, Any]) -> None:
    assert merge_string_data(given) == stored


async def test_a_secret_is_stored_without_string_data_whoever_writes_it(cluster: EmbeddedCluster) -> None:
    metadata = {"name": "keys", "namespace": "default"}
    made = await cluster.create(SECRET, {"metadata": metadata, "stringData": {"a": "1"}}, manager="test")
    patched = await cluster.patch(SECRET, "keys", {"stringData": {"b": "2"}}, "default", manager="test")
    applied = await cluster.apply(SECRET, {"metadata": metadata, "stringData": {"c": "3"}}, manager="other")
    same = await cluster.apply(SECRET, {"metadata": metadata, "stringData": {"c": "3"}}, manager="other")
    gone = await cluster.apply(SECRET, {"metadata": metadata}, manager="other")

    assert (made["data"], patched["data"]) == ({"a": "MQ=="}, {"a": "MQ==", "b": "Mg=="})
    assert applied["data"] == {"a": "MQ==", "b": "Mg==", "c": "Mw=="}
    assert same["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]
    assert gone["data"] == patched["data"]
    assert not any("stringData" in one for one in (made, patched, applied, gone))
