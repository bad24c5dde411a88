"""Where an issuer may have its keys: its document is a stranger's, and we are inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import pytest

from eventing.issuers import Discovery, addresses_of, is_public
from eventing.oidc import IssuerUnreachable


class Told(Discovery):
    """Discovery over documents that a test lists; what it asks for is in `asked`."""

    def __init__(self, documents: Mapping[str, Any], hosts: Mapping[str, Sequence[str]]) -> None:
        async def resolve(host: str) -> Sequence[str]:
            if host not in hosts:
                raise OSError("no such host")
            return hosts[host]

        super().__init__(aiohttp.ClientSession, resolve)
        self._documents = documents
        self.asked: list[str] = []

    async def _get(self, address: str) -> Mapping[str, Any]:
        self.asked.append(address)
        found: Mapping[str, Any] = self._documents.get(address, {"keys": []})
        return found


HOSTS = {
    "keys.example": ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"],
    "rebound.example": ["93.184.215.14", "10.0.0.7"],
    "10.0.0.7": ["10.0.0.7"],
    "127.0.0.1": ["127.0.0.1"],
}


@pytest.mark.parametrize(
    ("issuer", "address", "is_asked"),
    [
        ("https://issuer.example", "https://issuer.example/keys", True),
        ("https://issuer.example", "https://keys.example/certs", True),
        ("http://127.0.0.1:7000", "http://localhost:7001/keys", True),
        ("https://issuer.example", "http://127.0.0.1:9090/metrics", False),
        ("https://issuer.example", "http://issuer.example/keys", False),
        ("https://issuer.example", "http://keys.example/keys", False),
        ("https://issuer.example", "https://127.0.0.1/keys", False),
        ("https://issuer.example", "https://10.0.0.7/keys", False),
        ("https://issuer.example", "https://rebound.example/keys", False),
        ("https://issuer.example", "https://unknown.example/keys", False),
    ],
)
async def test_an_issuers_keys_are_on_its_own_host_or_a_public_one(issuer: str, address: str, is_asked: bool) -> None:
    where = f"{issuer}/.well-known/openid-configuration"
    discovery = Told({where: {"issuer": issuer, "jwks_uri": address}}, HOSTS)

    if is_asked:
        await discovery.fetch(issuer)
    else:
        with pytest.raises(IssuerUnreachable):
            await discovery.fetch(issuer)

    assert discovery.asked == ([where, address] if is_asked else [where])


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("10.0.0.1", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:93.184.215.14", True),
    ],
)
def test_public_addresses_are_those_of_the_internet(address: str, public: bool) -> None:
    assert is_public(address) is public


async def test_this_machine_is_resolved_to_itself() -> None:
    assert not any(map(is_public, await addresses_of("127.0.0.1")))
