"""The syntax of names and labels."""

from __future__ import annotations

import pytest

from clusters.base.names import dns_label_fault, label_key_fault, label_value_fault, subdomain_fault


@pytest.mark.parametrize("name", ["a", "a-b", "a.b-c.d", "0", "a" * 253, "iris-00001"])
def test_good_object_names(name: str) -> None:
    assert subdomain_fault(name) == ""


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a.", ".a", "a..b", "a/b", "ä", "a" * 254, "a\n", " a"])
def test_bad_object_names(name: str) -> None:
    assert subdomain_fault(name)


@pytest.mark.parametrize("name", ["", "a.b", "a" * 64, "A", "-a"])
def test_bad_dns_labels(name: str) -> None:
    assert dns_label_fault(name)


def test_the_longest_dns_label() -> None:
    assert dns_label_fault("a" * 63) == ""


@pytest.mark.parametrize("key", ["a", "A_b.c-d", "example.org/a", "a" * 63, "x" * 253 + "/a"])
def test_good_label_keys(key: str) -> None:
    assert label_key_fault(key) == ""


@pytest.mark.parametrize("key", ["", "/a", "a/", "a/b/c", "-a", "a" * 64, "Example.org/a", "a b", "a\n"])
def test_bad_label_keys(key: str) -> None:
    assert label_key_fault(key)


@pytest.mark.parametrize("value", ["", "a", "A.b_c-d", "a" * 63])
def test_good_label_values(value: str) -> None:
    assert label_value_fault(value) == ""


@pytest.mark.parametrize("value", ["-a", "a-", "a b", "a/b", "a" * 64, "a\n"])
def test_bad_label_values(value: str) -> None:
    assert label_value_fault(value)
