"""The interface of the servers of a client: the platform of this machine, and the API server of a context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from serving.client.http import ServerAddress


class Server(Protocol):
    """An API server: its address, its credentials, and the texts of its errors."""

    @property
    def endpoint(self) -> ServerAddress:
        """The address of the server."""
        ...

    @property
    def validates_models(self) -> bool:
        """Whether the server runs all checks of `serving.types` before it stores a Model."""
        ...

    @property
    def restart_window(self) -> float:
        """How long a waiting command tolerates an unreachable server, in seconds; a longer outage is an error."""
        ...

    def credentials(self) -> Mapping[str, str]:
        """Return the headers that authenticate a request, read anew for each one. Raises ClientError."""
        ...

    def unauthorized_message(self, message: str) -> str:
        """Describe a 401 with this message, with the remedy."""
        ...

    def forbidden_message(self, message: str) -> str:
        """Describe a 403 with this message, with the remedy."""
        ...

    def missing_message(self, resource: str) -> str:
        """Describe that the server does not serve `resource` (such as `models.knodel.dev`), with the remedy."""
        ...
