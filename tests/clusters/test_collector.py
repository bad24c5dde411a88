"""The garbage collector of long-lived processes."""

from __future__ import annotations

import gc

from clusters.collector import MIDDLE, YOUNG, spare_what_is_there


def test_what_is_there_is_spared_and_what_comes_is_looked_at_less_often() -> None:
    before = gc.get_threshold()
    try:
        spare_what_is_there()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (YOUNG, MIDDLE, before[2])
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
