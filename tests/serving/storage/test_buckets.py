"""Names of buckets, by the rules of Amazon S3 and Google Cloud Storage."""

from __future__ import annotations

import pytest

from serving.storage.base.uri_patterns import bucket_fault
from serving.types.faults import storage_uri_fault


@pytest.mark.parametrize(
    ("scheme", "bucket"),
    [
        ("s3", "abc"), ("s3", "models"), ("s3", "my.models-2"), ("s3", "a" * 63), ("s3", "team-s3alias"),
        ("gs", "abc"), ("gs", "my_models"), ("gs", "models.example.com"), ("gs", ".".join(["a" * 63] * 3)),
    ],
)  # fmt: skip
def test_a_bucket_that_the_provider_takes_is_taken(scheme: str, bucket: str) -> None:
    assert bucket_fault(scheme, bucket) == ""
    assert storage_uri_fault(f"{scheme}://{bucket}/iris.onnx") == ""


@pytest.mark.parametrize(
    ("scheme", "bucket", "words"),
    [
        ("s3", "a", "3 to 63 characters"), ("gs", "ab", "3 to 63 characters"), ("s3", "a" * 64, "3 to 63 characters"),
        ("gs", "a" * 64, "3 to 63 characters"), ("gs", f"{'a' * 64}.b", "3 to 222 characters"),
        ("s3", "my_models", "lower-case letters"), ("s3", "Models", "lower-case letters"),
        ("s3", "-models", "lower-case letters"), ("gs", "models.", "lower-case letters"),
        ("s3", "a..b", "single dots"), ("s3", "192.168.1.1", "IP address"), ("gs", "10.0.0.1", "IP address"),
        ("s3", "xn--models", "reserves"), ("s3", "sthree-x", "reserves"), ("gs", "goog-x", "reserves"),
        ("gs", "my-google-x", "reserves"),
    ],
)  # fmt: skip
def test_a_bucket_that_no_provider_has_is_refused_with_its_reason(scheme: str, bucket: str, words: str) -> None:
    assert words in bucket_fault(scheme, bucket)
    assert words in storage_uri_fault(f"{scheme}://{bucket}/iris.onnx")
