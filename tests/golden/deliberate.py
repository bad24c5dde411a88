"""Where the embedded cluster differs from real Knative on purpose, and why: case → `Kind/name condition` → reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DELIBERATE: Mapping[str, Mapping[str, str]] = MappingProxyType({})
