"""Which image serves a Model or waits in a WarmPool. Pure."""

from __future__ import annotations

from dataclasses import replace

from serving.types.settings.runtimes import runtime_of
from serving.types.settings.settings import ServerSettings, Settings


def server_of(runtime: str, model_format: str, settings: Settings) -> ServerSettings:
    """The server's settings with the image of the named runtime, else of the format's; "" for none.

    A name that the platform does not have is an obstacle of its own (`apis.runtimes.runtime_fault`): nothing is made.
    """
    found = runtime_of(settings.runtimes, runtime, model_format)
    return settings.server if found is None else replace(settings.server, image=found.image)
