"""`knodel` of a release to come: a Model has one field more in its spec, its status, and each line of its history.

    python -m tests.faults.controller.newer up …

`spec.mood` is a text; `status.mood` and `status.history[].mood` repeat it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Annotated, Any

from clusters.base.objects import Object
from serving.cli.main import main
from serving.reconciler import model as passes
from serving.reconciler.status import make_status as of_today
from serving.types import validation
from serving.types.fields import Format, Text
from serving.types.model import Model, ModelSpec

MOOD = "mood"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerSpec(ModelSpec):
    """The spec with the new field."""

    mood: Annotated[str, Text("Mood.", Format(lambda _: "", 64))] = ""


def make_status(model: Model, *arguments: Any, **options: Any) -> Object:
    """The status, with the new field in two places; in a line of history it is kept as it was first written."""
    status, mood = of_today(model, *arguments, **options), model.object["spec"].get(MOOD)
    if not mood:
        return status
    history = [{MOOD: mood, **line} for line in status.get("history", ())]
    return {**status, MOOD: mood, **({"history": history} if history else {})}


if __name__ == "__main__":
    vars(validation)["MODEL_TABLE"] = replace(validation.MODEL_TABLE, spec=NewerSpec)
    vars(passes)["make_status"] = make_status
    sys.exit(main())
