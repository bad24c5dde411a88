"""The stages of a user's class, inspected once: which there are, and how they are called.

    preprocess → predict → postprocess        all but `predict` may be missing

Each is a plain or an async function; `predict` may also be a generator, plain or async, and then `postprocess` is given
each part. The first stage takes each input by its name if its parameters are called so, else one thing: the array of
the only input, or a dict of all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from serving.engines.base.datatypes import Tensor
from serving.engines.base.errors import LoadFailed

Tensors = Mapping[str, Tensor]
Stage = Callable[..., Any]
Way = Callable[[Stage, Tensors], Any]
"""Calls the first stage with the tensors as it wants them."""

LOAD: Final = "load"
PREDICT: Final = "predict"
PREPROCESS: Final = "preprocess"
POSTPROCESS: Final = "postprocess"


@dataclass(frozen=True, slots=True)
class Stages:
    """`way` is how the first stage is called; `yields`: `predict` is a generator."""

    preprocess: Stage | None
    predict: Stage
    postprocess: Stage
    way: Way
    yields: bool


def stages_of(model: Any, inputs: Sequence[str]) -> Stages:
    """The stages of an object that is given tensors called `inputs`. Raises LoadFailed."""
    preprocess, predict, postprocess = (method(model, name) for name in (PREPROCESS, PREDICT, POSTPROCESS))
    if predict is None:
        raise LoadFailed(f"class {type(model).__name__} has no method {PREDICT}")
    yields = inspect.isgeneratorfunction(predict) or inspect.isasyncgenfunction(predict)
    return Stages(preprocess, predict, postprocess or _as_it_is, _way_of(preprocess or predict, inputs), yields)


def is_async(model: Any) -> bool:
    """Whether a method of the object that the server calls is async."""
    methods = [method(model, name) for name in (LOAD, PREPROCESS, PREDICT, POSTPROCESS)]
    return any(map(awaits, methods))


def awaits(stage: Stage | None) -> bool:
    """Whether it is an async function or an async generator."""
    return inspect.iscoroutinefunction(stage) or inspect.isasyncgenfunction(stage)


def method(model: Any, name: str) -> Stage | None:
    """The method of that name, if there is one. Raises LoadFailed when it is something else."""
    found = getattr(model, name, None)
    if found is not None and not callable(found):
        raise LoadFailed(f"{name} of class {type(model).__name__} is no method")
    return found


def takes(stage: Stage, *positional: object, **named: object) -> bool:
    """Whether `stage` can be called so."""
    try:
        signature = inspect.signature(stage)
    except ValueError:  # functions in C need not tell
        return not named
    try:
        signature.bind(*positional, **named)
    except TypeError:
        return False
    return True


def _way_of(stage: Stage, inputs: Sequence[str]) -> Way:
    if takes(stage, **dict.fromkeys(inputs)):
        return _by_name
    if not takes(stage, None):
        names = ", ".join(inputs)
        raise LoadFailed(
            f"{getattr(stage, '__name__', stage)} takes neither the inputs by name ({names}) nor one value"
        )
    return _all_in_a_dict if len(inputs) > 1 else partial(_alone, inputs[0])


def _by_name(stage: Stage, tensors: Tensors) -> Any:
    return stage(**tensors)


def _all_in_a_dict(stage: Stage, tensors: Tensors) -> Any:
    return stage(tensors)


def _alone(name: str, stage: Stage, tensors: Tensors) -> Any:
    return stage(tensors[name])


def _as_it_is(value: Any) -> Any:
    return value
