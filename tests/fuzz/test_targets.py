"""Each target of `make fuzz`, for a moment."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.fuzz.target import Target, explore
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("target", list(chain.from_iterable(TARGETS.values())), ids=lambda target: target.name)
def test_random_input_breaks_no_promise(target: Target) -> None:
    with target.opened() as check:
        explore(target, check, target.everyday)
