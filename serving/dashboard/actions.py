"""The actions of the dashboard: each runs the operation of a command, and shows that command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusters.base.objects import Object, name_of, namespace_of
from serving.client.api import ApiCalls
from serving.client.effects import Call
from serving.client.errors import UsageError
from serving.client.models import rollouts
from serving.client.models.model_events import spec_of
from serving.client.platform_ref import DEFAULT_NAMESPACE
from serving.dashboard.views.models import shares_of
from serving.reconciler.rollout.state import rollout_of
from serving.types.model import history_of

TIMEOUT: Final = 30.0
"""Seconds to wait until a change is applied. The change is stored even if it takes longer."""
ALL: Final = 100
Form = Mapping[str, str]
"""The fields of a form."""
PERCENT: Final = "percent."
"""Prefix of the fields of the action traffic; the rest is a revision."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action on a Model.

    `effect` describes it for the confirmation. `applies` returns whether it makes sense now. `arguments` returns those
    of the command after the model's name; raises UsageError. `run` is the operation. A `stern` one is marked.
    """

    name: str
    title: str
    effect: str
    applies: Callable[[Object], bool]
    run: Callable[[ApiCalls, str, str, Form], Call[Object]]
    arguments: Callable[[Form], list[str]] = lambda _: []
    stern: bool = False

    def command(self, model: Object, form: Form) -> str:
        """Return the command that does the same. Raises UsageError for a form with invalid fields."""
        return command_line([self.name, name_of(model), *self.arguments(form)], namespace_of(model))


def command_line(words: Sequence[str], namespace: str) -> str:
    """Return a command of Knodel as text for a shell."""
    scope = [] if namespace == DEFAULT_NAMESPACE else ["-n", namespace]
    return shlex.join(["knodel", *words, *scope])


def _phase(model: Object) -> str:
    """Return the phase of the rollout that runs; empty if none does."""
    state = rollout_of(model)
    return state.phase if state is not None and state.runs else ""


def _can_promote(model: Object) -> bool:
    spec, state = model.get("spec") or {}, rollout_of(model)
    is_held = state is not None and (state.runs or state.refuses)
    return bool(spec.get("traffic") or spec.get("canaryTrafficPercent") is not None or is_held)


def _shares(form: Form) -> list[tuple[str, int]]:
    """Return the (revision, percent) of a form. Raises UsageError."""
    targets = []
    for field, text in form.items():
        if not field.startswith(PERCENT) or not text.strip():
            continue
        text = text.strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 3):
            raise UsageError(f"{text[:20]!r} is not a percentage: give 0 to 100")
        targets.append((field.removeprefix(PERCENT), int(text)))
    if sum(percent for _, percent in targets) != ALL:
        raise UsageError(f"the percentages add up to {sum(percent for _, percent in targets)}: they must add up to 100")
    return targets


def _to(form: Form) -> str | None:
    return form.get("to") or None


def _rollback_arguments(form: Form) -> list[str]:
    to = _to(form)
    return ["--to", to] if to else []


ACTIONS: Final[Mapping[str, Action]] = {
    one.name: one
    for one in (
        Action(
            "promote", "Promote",
            "All traffic goes to the latest ready version. This ends a pin, a canary or a rollout.",
            _can_promote, lambda api, name, namespace, _: rollouts.promote(api, name, namespace, TIMEOUT),
        ),
        Action(
            "pause", "Pause", "The rollout stays at its step. A failing version is still rolled back.",
            lambda model: _phase(model) == "Progressing",
            lambda api, name, namespace, _: rollouts.pause(api, name, namespace, TIMEOUT),
        ),
        Action(
            "resume", "Resume", "The rollout continues with the rest of its step.",
            lambda model: _phase(model) == "Paused",
            lambda api, name, namespace, _: rollouts.resume(api, name, namespace, TIMEOUT),
        ),
        Action(
            "abort", "Abort", "The rollout ends, and all traffic goes to the stable version.",
            lambda model: bool(_phase(model)),
            lambda api, name, namespace, _: rollouts.abort(api, name, namespace, TIMEOUT),
            stern=True,
        ),
        Action(
            "traffic", "Split traffic", "The traffic is pinned to this split until a promotion.",
            lambda model: len(versions_of(model)) > 1,
            lambda api, name, namespace, form: rollouts.set_traffic(api, name, namespace, TIMEOUT, _shares(form)),
            lambda form: [f"{revision}={percent}" for revision, percent in _shares(form)],
        ),
        Action(
            "rollback", "Roll back", "All traffic goes to the version that had it before, and is pinned there.",
            lambda model: len(versions_of(model)) > 1,
            lambda api, name, namespace, form: rollouts.rollback(api, name, namespace, TIMEOUT, _to(form)),
            _rollback_arguments,
            stern=True,
        ),
    )
}  # fmt: skip
"""The actions on Models by name, which is also the name of the command."""


def applicable(model: Object) -> list[Action]:
    """Return the actions that make sense for a Model now."""
    return [one for one in ACTIONS.values() if one.applies(model)]


def versions_of(model: Object) -> list[tuple[str, str, int]]:
    """Return (revision, version label, percent now) of all known versions, newest first."""
    percents: dict[str, int] = {}
    for share in shares_of(model):
        percents[share.revision] = percents.get(share.revision, 0) + share.percent
    labels = {entry.revision: entry.version for entry in history_of(model)}
    known = dict.fromkeys([*labels, *percents])
    return [(revision, labels.get(revision, ""), percents.get(revision, 0)) for revision in reversed(known)]


def replay_command(event: Object) -> str:
    """Return the command that replays a ModelEvent."""
    spec = spec_of(event)
    source = ["--source", str(spec["source"])] if spec.get("source") else []
    return command_line(["events", "replay", str(spec.get("id") or ""), *source], namespace_of(event))
