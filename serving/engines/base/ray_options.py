"""The options of a Ray Serve application, `spec.ray` of a Model. Pure.

Without compiled packages, since the command imports this module too.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

APPLICATION: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*")
"""An import path as Ray Serve has it. It is also in the CustomResourceDefinition: only features of RE2."""
LONGEST_APPLICATION: Final = 253  # characters
APPLICATION_FORM: Final = "MODULE:NAME, as in app:app"


class RayOptions(NamedTuple):
    """Options of a Ray Serve application.

    application    import path of the application, for a folder without `serve.yaml`; "" is `app:app`
    service        URL of a Ray Serve elsewhere that serves the model, "" for one of the files
    """

    application: str = ""
    service: str = ""


def application_fault(path: str) -> str:
    """Return why `path` is not the import path of an application; empty if it is one."""
    if len(path) > LONGEST_APPLICATION:
        return f"must be at most {LONGEST_APPLICATION} characters, not {len(path)}"
    return "" if APPLICATION.fullmatch(path) else f"must be {APPLICATION_FORM}, not {path[:LONGEST_APPLICATION]!r}"
