"""Get a one-time link to the dashboard of a platform."""

from __future__ import annotations

from typing import Final

from serving.client.api import ApiCalls
from serving.client.effects import Call
from serving.client.errors import ClientError
from serving.client.http import FOREIGN

LINKS: Final = "/dashboard/links"


def dashboard_link(api: ApiCalls) -> Call[str]:
    """Return the path of a link that can be used once, within a minute, at the plain port of the control API.

    Raises ClientError.
    """
    path = (yield from api.post(LINKS)).get("path")
    if not isinstance(path, str) or not path.startswith("/"):
        raise ClientError(f"{api.server.endpoint.what} sent no link: {FOREIGN}")
    return path
