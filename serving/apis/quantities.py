"""Kubernetes quantities, as `clusters.quantities` has them."""

from __future__ import annotations

from clusters.quantities import LONGEST_TEXT, QUANTITY, canonical_quantity, format_cores, parse_quantity

__all__ = ["LONGEST_TEXT", "QUANTITY", "canonical_quantity", "format_cores", "parse_quantity"]
