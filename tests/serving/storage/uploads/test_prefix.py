"""Prefixes of uploaded artifacts."""

from __future__ import annotations

import pytest

from serving.storage.upload.prefix import parse_prefix, prefix_fault

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("prefix", "uri"),
    [
        ("s3://models", f"s3://models/sha256/{'a' * 64}/m.onnx"),
        ("s3://models/", f"s3://models/sha256/{'a' * 64}/m.onnx"),
        ("gs://models/team/a/", f"gs://models/team/a/sha256/{'a' * 64}/m.onnx"),
    ],
)
def test_keys_hold_the_digest(prefix: str, uri: str) -> None:
    parsed = parse_prefix(prefix)
    assert parsed.uri(parsed.key(DIGEST, "/m.onnx")) == uri


@pytest.mark.parametrize(
    "prefix",
    ["", "models", "/models", "https://host/models", "hf://org/repo", "file:///models", "s3://", "s3://A/x", "s3://ab",
     "s3://bucket/a b", "s3://bucket/a?b", "s3://bucket/a/../b", "s3://bucket/a//b", "gs://google-models/x",
     "oci://registry", "oci://registry/repo:tag", f"oci://registry/repo@{DIGEST}", "oci://registry/Repo",
     "s3://bucket/" + "x" * 513],
)  # fmt: skip
def test_other_texts_are_refused_with_the_form(prefix: str) -> None:
    assert prefix_fault(prefix)


@pytest.mark.parametrize("prefix", ["oci://registry.example.org/team/models", "oci://127.0.0.1:5000/models"])
def test_a_repository_is_a_prefix(prefix: str) -> None:
    assert prefix_fault(prefix) == ""


@pytest.mark.parametrize("scheme", ["s3", "gs", "oci"])
def test_a_password_is_refused_and_not_repeated(scheme: str) -> None:
    fault = prefix_fault(f"{scheme}://user:s3cret@registry/models")
    assert "must not contain a user or password" in fault and "s3cret" not in fault
