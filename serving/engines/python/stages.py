"""Inspect the stages of a user's class, once, when the model is loaded.

    preprocess → predict → postprocess        only `predict` is required

Each is a plain or an async function. `predict` may also be a generator, plain or async; `postprocess` then gets each
part. The first stage gets each input as a keyword argument if its parameters have these names. Otherwise it gets one
argument: the array of the only input, or a dict of all inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from serving.engines.base.datatypes import Tensor
from serving.engines.base.errors import LoadFailed

Tensors = Mapping[str, Tensor]
Stage = Callable[..., Any]
FirstCall = Callable[[Stage, Tensors], Any]
"""Calls the first stage with the tensors in the form of its parameters."""

LOAD: Final = "load"
PREDICT: Final = "predict"
PREPROCESS: Final = "preprocess"
POSTPROCESS: Final = "postprocess"


@dataclass(frozen=True, slots=True)
class Stages:
    """The methods of an inference. `call_first` calls the first one; `yields` is whether `predict` is a generator."""

    preprocess: Stage | None
    predict: Stage
    postprocess: Stage
    call_first: FirstCall
    yields: bool


def stages_of(model: Any, inputs: Sequence[str]) -> Stages:
    """Return the stages of an instance whose inputs are called `inputs`. Raises LoadFailed."""
    preprocess, predict, postprocess = (find_method(model, name) for name in (PREPROCESS, PREDICT, POSTPROCESS))
    if predict is None:
        raise LoadFailed(f"class {type(model).__name__} has no method {PREDICT}")
    yields = inspect.isgeneratorfunction(predict) or inspect.isasyncgenfunction(predict)
    return Stages(preprocess, predict, postprocess or _unchanged, _first_call(preprocess or predict, inputs), yields)


def is_async(model: Any) -> bool:
    """Return whether any method that the server calls is async."""
    methods = [find_method(model, name) for name in (LOAD, PREPROCESS, PREDICT, POSTPROCESS)]
    return any(map(is_async_function, methods))


def is_async_function(stage: Stage | None) -> bool:
    """Return whether a stage is an async function or an async generator."""
    return inspect.iscoroutinefunction(stage) or inspect.isasyncgenfunction(stage)


def find_method(model: Any, name: str) -> Stage | None:
    """Return the method of that name, None without it. Raises LoadFailed for an attribute that is not a method."""
    found = getattr(model, name, None)
    if found is not None and not callable(found):
        raise LoadFailed(f"{name} of class {type(model).__name__} is not a method")
    return found


def accepts(stage: Stage, *positional: object, **named: object) -> bool:
    """Return whether `stage` accepts these arguments."""
    try:
        signature = inspect.signature(stage)
    except ValueError:  # functions in C may have no signature
        return not named
    try:
        signature.bind(*positional, **named)
    except TypeError:
        return False
    return True


def _first_call(stage: Stage, inputs: Sequence[str]) -> FirstCall:
    if accepts(stage, **dict.fromkeys(inputs)):
        return lambda stage, tensors: stage(**tensors)
    if not accepts(stage, None):
        names = ", ".join(inputs)
        raise LoadFailed(
            f"{getattr(stage, '__name__', stage)} accepts neither the inputs by name ({names}) nor one argument"
        )
    if len(inputs) > 1:
        return lambda stage, tensors: stage(tensors)
    (only,) = inputs
    return lambda stage, tensors: stage(tensors[only])


def _unchanged(value: Any) -> Any:
    return value
