"""Route tables of one model, `m`, and its error responses."""

from __future__ import annotations

from collections.abc import Mapping

from clusters.base.objects import Key
from clusters.gateway.ingress import virtual_hosts
from clusters.gateway.routes import Backend as Address
from clusters.gateway.routes import Table
from tests.clusters.gateway.backends import Answer
from tests.clusters.gateway.ingresses import ingress

ONE, TWO = Key("default", "m-00001"), Key("default", "m-00002")
HEAD = b"Host: m.default.localhost\r\n"


def table(
    splits: dict[str, int],
    backends: Mapping[Key, tuple[Address, ...]],
    activator: Address | None = None,
    tags: dict[str, str] | None = None,
    timeout: float = 30.0,
) -> Table:
    return Table(virtual_hosts(ingress("m", splits, tags), lambda revision: timeout), backends, activator)


def is_error(answer: Answer, status: int) -> bool:
    return answer.status == status and list(answer.json) == ["error"]
