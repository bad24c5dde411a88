"""Find out whether an engine is a server of its own, without importing what only such engines need."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from serving.engines.base.engine import Engine
    from serving.engines.upstream.remote import RemoteEngine

_MODULE: Final = "serving.engines.upstream.remote"


def upstream_of(engine: Engine) -> RemoteEngine | None:
    """Return the engine if it is a server of its own, else None."""
    module = sys.modules.get(_MODULE)  # imported with the first such engine
    if module is None or not isinstance(engine, module.RemoteEngine):
        return None
    found: RemoteEngine = engine
    return found
