"""What one machine has in the place of a cluster's parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.modelserver.base.options import parse_options
from serving.platform.local_node import gateway_hosts, images
from serving.types.settings.settings import Settings, SettingsError, settings_from_text

ARGS = ["--name", "m", "--storage-uri", "file:///m"]


def settings(gateway: str) -> Settings:
    return settings_from_text(f"gateway: {{{gateway}}}", "a test")


def test_a_gateway_on_loopback_has_names_of_its_own() -> None:
    assert gateway_hosts(Settings().gateway) == ("127.0.0.1", "localhost", "[::1]", "*.localhost")
    more = gateway_hosts(settings("address: '::1', domain: models.lan, hosts: 'Proxy.lan, *.team.example'").gateway)
    assert {"[::1]", "*.models.lan", "proxy.lan", "*.team.example", "localhost"} <= set(more)


def test_a_gateway_beyond_loopback_takes_any_name_unless_some_are_set() -> None:
    assert gateway_hosts(settings("address: 0.0.0.0").gateway) == ("*",)
    assert "proxy.lan" in gateway_hosts(settings("address: 0.0.0.0, hosts: proxy.lan").gateway)
    with pytest.raises(SettingsError, match=r"gateway\.hosts: 'proxy:80' is not a host name"):
        settings("hosts: 'proxy:80'")


@pytest.mark.parametrize("domain", ["'*.lan'", "http://lan", "lan:80", "'.'"])
def test_a_domain_of_which_no_host_name_can_be_made_is_refused(domain: str) -> None:
    with pytest.raises(SettingsError, match=r"gateway\.domain: .* is not a domain"):
        settings(f"domain: {domain}")


def test_replicas_take_what_the_gateway_sends_and_nothing_of_web_pages(tmp_path: Path) -> None:
    (image,) = images(tmp_path, Settings()).values()
    hosts = parse_options(ARGS, {**image.env, "HOST": "127.0.0.1"}).hosts
    assert hosts is not None
    for host in ("127.0.0.1:9000", "m.default.localhost", "m.default.path.gateway.knodel.internal"):
        assert hosts.knows(host)
    assert not hosts.knows("evil.example")
    (image,) = images(tmp_path, settings("address: 0.0.0.0")).values()
    assert parse_options(ARGS, {**image.env, "HOST": "127.0.0.1"}).hosts is None
