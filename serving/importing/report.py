"""The report of an import, as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clusters.base.objects import name_of
from serving.importing.conversion import Conversion, LeftOut


def report_lines(conversion: Conversion, file: str) -> Iterator[str]:
    """Yield the lines about one object: the Model, each field that was left out, and what is to do."""
    if not conversion.models:
        (reason,) = conversion.left_out
        where = f"{_place(reason)}: " if reason.path else ""
        yield f"{conversion.source} ({file}): not converted"
        yield f"  {where}{reason.why}; {reason.instead}"
        return
    yield f"{conversion.source} ({file}): Model {name_of(conversion.models[0])}"
    for field in conversion.left_out:
        yield f"  left out: {_place(field)}: {field.why}; {field.instead}"
    for line in conversion.to_do:
        yield f"  to do: {line}"


def summary_line(conversions: Sequence[Conversion]) -> str:
    """Return how much was converted."""
    models = [one for one in conversions if one.models]
    fields = sum(len(one.left_out) for one in models)
    left_out = (
        "no field was left out"
        if not fields
        else "1 field was left out"
        if fields == 1
        else f"{fields} fields were left out"
    )
    return f"{len(models)} of {len(conversions)} objects converted, {left_out}"


def _place(field: LeftOut) -> str:
    return f"{field.path} ({field.value})" if field.value else field.path
