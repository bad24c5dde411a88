"""The allowed values of Host and Origin for a server without authentication."""

from __future__ import annotations

import pytest

from clusters.net.hosts import LOOPBACK_NAMES, KnownHosts, host_name

HOSTS = KnownHosts(frozenset({*LOOPBACK_NAMES, "models.lan", "*.team.example"}))


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:8080", True),
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("localhost.", True),
        ("[::1]:8080", True),
        ("iris.default.localhost:8080", True),
        ("models.lan:8080", True),
        ("a.b.team.example", True),
        ("team.example", False),
        ("evil.example:8080", False),
        ("localhost.evil.example", False),
        ("evillocalhost", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.1", False),
        ("[::2]", False),
        ("", False),
        (":80", False),
    ],
)
def test_a_host_is_known_by_its_whole_name(host: str, known: bool) -> None:
    assert HOSTS.knows(host) is known
    assert (HOSTS.refusal(host, None) is None) is known


@pytest.mark.parametrize(
    ("origin", "known"),
    [
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:8080", True),
        ("https://evil.example", False),
        ("http://evil.example/localhost", False),
        ("null", False),
        ("", False),
    ],
)
def test_a_page_is_known_by_the_host_of_its_origin(origin: str, known: bool) -> None:
    assert (HOSTS.refusal("localhost", origin) is None) is known


def test_a_refusal_names_the_option_that_allows_the_host() -> None:
    assert "--allowed-host evil.example" in str(HOSTS.refusal("evil.example:80", None))
    assert "--allowed-host evil.example" in str(HOSTS.refusal("localhost", "https://evil.example:1"))
    assert "\n" not in str(HOSTS.refusal("evil\nexample " + "x" * 1000, None))


def test_the_allowed_name_is_one_that_the_option_and_a_shell_take() -> None:
    assert "--allowed-host '*' " in str(HOSTS.refusal("localhost", "null"))
    assert "--allowed-host '*' " in str(HOSTS.refusal("$(reboot)", None))
    assert "--allowed-host '[::2]' " in str(HOSTS.refusal("[::2]:80", None))


def test_a_host_without_its_port() -> None:
    assert [host_name(host) for host in ("A:80", "[::1]:80", "[::1]", "a.")] == ["a", "[::1]", "[::1]", "a"]
