"""Whom a client talks to: the platform of this machine, or the API server of a kubeconfig's context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from serving.cli.client.http import Endpoint


class Server(Protocol):
    """An API server: where it is, what proves who asks, and the words that its errors need."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it is."""
        ...

    @property
    def checks_models(self) -> bool:
        """Whether it asks every question of `serving.types` itself before it stores a Model."""
        ...

    @property
    def restarts_within(self) -> float:
        """Seconds for which it may be away while somebody waits; what takes longer a person wants to know."""
        ...

    def credentials(self) -> Mapping[str, str]:
        """Headers that prove who asks, fresh for every request. Raises CommandError when there are none."""
        ...

    def unauthorized(self, message: str) -> str:
        """What its refusal of the credentials means, with the remedy."""
        ...

    def forbidden(self, message: str) -> str:
        """What its refusal of a right means, with the remedy."""
        ...

    def lacks(self, resource: str) -> str:
        """What it means that it does not know `resource` (`models.knodel.dev`), with the remedy."""
        ...
