"""Write the adapters of a language model where its replicas read them, without a new version. Pure.

    the spec has another list     the ConfigMap of the Model gets it, then the PodAutoscalers of the newest version
    the spec has a new version    that version gets the list of the spec; former versions keep theirs, which are on
                                  their PodAutoscalers

So a rollback serves the adapters of the former version, and a new version with other adapters harms no former one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

from autoscaler.reconciler.status import adapters_condition_of
from autoscaler.types import ADAPTERS_ANNOTATION
from clusters.base.objects import CONFIG_MAP, POD_AUTOSCALER, annotations_of, name_of
from serving.makers.adapters import make_adapter_list, make_adapters
from serving.reconciler.actions import Action, Apply, Patch
from serving.reconciler.observe import World
from serving.types.lifecycle import GOOD, State
from serving.types.model import Model, loads_adapters


def adapter_actions(model: Model, world: World, newest: Collection[str]) -> Iterator[Action]:
    """Return the writes of the adapters; `newest` are the revisions of the spec's version, empty before it exists."""
    if not loads_adapters(model.spec):
        return
    text = json.dumps(make_adapter_list(model), sort_keys=True, separators=(",", ":"))
    ours = [one for one in world.autoscalers if name_of(one) in newest]
    new = [one for one in ours if annotations_of(one).get(ADAPTERS_ANNOTATION) != text]
    state = adapters_state(model, world)
    if ours and not new and state is not None and state.status == "True":
        return  # else the ConfigMap may have been deleted or edited
    others = (one for one in world.autoscalers if name_of(one) not in newest)
    former = {name_of(one): annotations_of(one).get(ADAPTERS_ANNOTATION) for one in others}
    lists = {name: json.loads(found) for name, found in former.items() if found}
    yield Apply(CONFIG_MAP, make_adapters(model, lists), force=True)
    for one in new:
        yield Patch.of(POD_AUTOSCALER, one, {"metadata": {"annotations": {ADAPTERS_ANNOTATION: text}}})


def adapters_state(model: Model, world: World) -> State | None:
    """Return whether the adapters are served by all replicas; None for a Model that does not load them later."""
    if not loads_adapters(model.spec):
        return None
    running = [one for one in world.autoscalers if int((one.get("status") or {}).get("actualScale") or 0) > 0]
    found = [(name_of(one), condition) for one in running if (condition := adapters_condition_of(one)) is not None]
    if not found:
        return State("Unknown", "NoReplicas", "replicas load the adapters when they start")
    revision, worst = min(found, key=lambda one: (("False", "Unknown", "True").index(one[1]["status"]), one[0]))
    if worst["status"] == "True":
        return GOOD
    return State(worst["status"], worst.get("reason", ""), f"{revision}: {worst.get('message', '')}")
