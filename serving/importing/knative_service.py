"""Services of Knative (`serving.knative.dev/v1`) that run a known model server. Pure."""

from __future__ import annotations

from typing import Final

from serving.importing.containers import GENERAL, take_resources, take_server
from serving.importing.conversion import ANY, Conversion, ForeignObject, NotConverted, Rule
from serving.importing.scaling import METADATA_RULES, take_autoscaling, take_metadata

TEMPLATE: Final = ("spec", "template")
POD: Final = (*TEMPLATE, "spec")
CONTAINER: Final = (*POD, "containers", 0)

_CONTAINER_RULE: Final = "the container is the platform's"
RULES: Final = (
    *METADATA_RULES,
    Rule(("metadata", "annotations", ANY), "it may have a meaning for another controller",
         "add it to the Model if it is a note"),
    Rule((*TEMPLATE, "metadata", "name"), "a Model's revisions are named by the platform"),
    Rule((*TEMPLATE, "metadata", "creationTimestamp"), "set by the cluster that the object was read from"),
    Rule((*TEMPLATE, "metadata", "annotations", "sidecar.istio.io/*"), "Knodel runs without Istio"),
    Rule((*TEMPLATE, "metadata", "annotations", "autoscaling.knative.dev/*"), "Models have one autoscaler",
         "set spec.scaleTarget: concurrent requests of a replica"),
    Rule((*TEMPLATE, "metadata", "labels"), "Pods have the platform's labels", "label the Model"),
    Rule((*POD, "enableServiceLinks"), "a Model's Pods have none"),
    Rule((*POD, "responseStartTimeoutSeconds"), "a Model has one timeout", "set spec.timeout"),
    Rule((*POD, "idleTimeoutSeconds"), "a Model has one timeout", "set spec.timeout"),
    *(
        Rule((*CONTAINER, name), _CONTAINER_RULE)
        for name in ("name", "ports", "imagePullPolicy", "livenessProbe", "readinessProbe", "startupProbe",
                     "terminationMessagePath", "terminationMessagePolicy", "securityContext")
    ),
    Rule((*CONTAINER, "args"), "options of another server", "see the fields of a Model (docs/reference.md)"),
    Rule((*CONTAINER, "command"), "options of another server", "see the fields of a Model (docs/reference.md)"),
    Rule((*CONTAINER, "env"), "a Model has no environment variables", "see the fields of a Model (docs/reference.md)"),
    Rule((*CONTAINER, "resources", ANY, "nvidia.com/*"), "Models have no GPUs yet", "the model runs on the CPU"),
    Rule(("spec", "traffic"), "a Model has revisions of its own: deploy each version, then split the traffic",
         "`knodel traffic NAME REVISION=PERCENT`"),
)  # fmt: skip
OTHERWISE: Final = Rule((), "a Model has no such field", "decide whether the Model works without it")


def convert_knative_service(made: ForeignObject) -> Conversion:
    """Return the Model of a Knative Service, and what it lacks."""
    try:
        take_metadata(made)
        containers = made.get(*POD, "containers")
        if not isinstance(containers, list) or len(containers) != 1:
            raise NotConverted(*GENERAL, path=(*POD, "containers"))
        take_server(made, CONTAINER)
        take_resources(made, (*CONTAINER, "resources"))
        for name in ("containerConcurrency", "serviceAccountName"):
            made.carry((*POD, name), name)
        timeout = made.get(*POD, "timeoutSeconds")
        if isinstance(timeout, int) and not isinstance(timeout, bool):
            made.carry((*POD, "timeoutSeconds"), "timeout", f"{timeout}s")
        take_autoscaling(made, (*TEMPLATE, "metadata", "annotations"))
        traffic = made.get("spec", "traffic")
        if traffic in ([{"latestRevision": True, "percent": 100}], [{"percent": 100, "latestRevision": True}]):
            made.drop(("spec", "traffic"), "all traffic goes to the newest version")
        return made.finish(RULES, OTHERWISE)
    except NotConverted as error:
        return made.refuse(error)
