"""Which version serves after saves, loads, failures and crashes: the table of `serving.cli.dev.reload`."""

from __future__ import annotations

import pytest

from serving.cli.dev.messages import Failure
from serving.cli.dev.reload import (
    MAX_RESTARTS,
    Drain,
    Effect,
    Ended,
    Event,
    Gone,
    Kill,
    LoadFailed,
    Ready,
    Reload,
    Saved,
    Serve,
    Start,
    advance,
)

BROKEN = Failure("model.py line 3: NameError")
SERVES_1 = Reload(serving=1, last=1)
LOADS_2 = Reload(serving=1, loading=2, last=2)


@pytest.mark.parametrize(
    ("state", "event", "serving", "loading", "effects"),
    [
        (Reload(), Saved(), None, 1, [Start(1)]),
        (Reload(loading=1, last=1), Ready(1), 1, None, [Serve(1)]),
        (SERVES_1, Saved(), 1, 2, [Start(2)]),
        (LOADS_2, Saved(), 1, 3, [Kill(2), Start(3)]),
        (LOADS_2, Ready(2), 2, None, [Serve(2), Drain(1)]),
        (LOADS_2, LoadFailed(2, BROKEN), 1, None, [Kill(2)]),
        (LOADS_2, Ended(2, "with exit code 3"), 1, None, [Kill(2)]),
        (LOADS_2, Gone("m"), 1, None, [Kill(2)]),
        (SERVES_1, Gone("m"), 1, None, []),
        (SERVES_1, Ended(1, "by SIGKILL"), None, 2, [Kill(1), Start(2)]),
        (LOADS_2, Ended(1, "by SIGKILL"), None, 2, [Kill(1)]),
        (Reload(serving=1, last=2, failure=BROKEN), Ended(1, "by SIGKILL"), None, None, [Kill(1)]),
        (Reload(serving=1, last=1, restarts=MAX_RESTARTS), Ended(1, "by SIGKILL"), None, None, [Kill(1)]),
        (Reload(loading=1, last=1), LoadFailed(1, BROKEN), None, None, [Kill(1)]),
    ],
)
def test_an_event_changes_the_versions(
    state: Reload, event: Event, serving: int | None, loading: int | None, effects: list[Effect]
) -> None:
    after, made = advance(state, event)

    assert (after.serving, after.loading, made) == (serving, loading, effects)


@pytest.mark.parametrize("event", [Ready(1), LoadFailed(1, BROKEN), Ended(1, "by SIGTERM")])
def test_reports_of_replaced_versions_change_nothing(event: Event) -> None:
    state = Reload(serving=2, loading=3, last=3)

    assert advance(state, event) == (state, [])


def test_a_failure_is_kept_until_the_next_save_and_is_gone_once_a_version_is_loaded() -> None:
    failed, _ = advance(LOADS_2, LoadFailed(2, BROKEN))
    saved, _ = advance(failed, Saved())
    loaded, _ = advance(saved, Ready(3))

    assert [state.failure for state in (failed, saved, loaded)] == [BROKEN, None, None]
    assert loaded.serving == 3


def test_a_version_that_crashes_again_and_again_is_restarted_a_few_times_until_a_save() -> None:
    state, starts = SERVES_1, 0
    while state.serving is not None:
        state, effects = advance(state, Ended(state.serving, "by SIGSEGV"))
        if state.loading is None:
            break
        starts += sum(isinstance(effect, Start) for effect in effects)
        state, _ = advance(state, Ready(state.loading))

    assert starts == MAX_RESTARTS
    assert advance(state, Saved())[0].restarts == 0
