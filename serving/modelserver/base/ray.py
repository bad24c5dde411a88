"""Options of a Ray Serve application. Pure.

They come from the command line or from a load call, where they have the form of a Model's `spec.ray`:

    {"application"?}
"""

from __future__ import annotations

from typing import Final

import msgspec

from clusters.base.errors import KnodelError
from serving.engines.base.ray_options import RayOptions, application_fault


class BadRayOptions(KnodelError):
    """Raised for invalid options of a Ray Serve application."""


class RayParameters(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Options of a Ray Serve application, as in `engines.base.ray_options.RayOptions`."""

    application: str = ""

    def check(self) -> None:
        """Check the values. Raises BadRayOptions."""
        if self.application and (fault := application_fault(self.application)):
            raise BadRayOptions(f"the application of Ray {fault}")

    def options(self) -> RayOptions:
        """Return the options for the engine."""
        return RayOptions(self.application)


NO_RAY: Final = RayParameters()
