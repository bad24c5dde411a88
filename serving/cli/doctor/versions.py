"""Versions of the command, of Knodel on a cluster, of Knative and of Kubernetes, and what is wrong with them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from clusters.base.objects import Object, labels_of, name_of

LABEL_VERSION: Final = "app.kubernetes.io/version"
UNRELEASED: Final = "devel"
"""Value of `LABEL_VERSION` in a build of Knative from its sources."""
UNKNOWN: Final = "unknown"
"""Shown for components whose images have only a digest, and no label has their version."""
SUPPORTED_SKEW: Final = 1
"""Minor versions between the command and the cluster (docs/releases.md)."""
_RELEASE: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.\d+)?")


def component_versions(deployments: Sequence[Object]) -> dict[str, str]:
    """Return the version of each Deployment: the tag of its image, else its label, else `UNKNOWN`.

    Example:
        >>> container = {"image": "knodel.dev/controller:0.1.0"}
        >>> spec = {"template": {"spec": {"containers": [container]}}}
        >>> component_versions([{"metadata": {"name": "knodel-controller"}, "spec": spec}])
        {'knodel-controller': '0.1.0'}
    """
    return {name_of(one): _tag(one) or _label(one) or UNKNOWN for one in deployments}


def knative_version(deployments: Sequence[Object]) -> str:
    """Return the version of Knative Serving, by the labels of its Deployments, else by the tags of their images."""
    found = {_label(one) or _tag(one) for one in deployments}
    return ", ".join(sorted(found - {""})) or UNKNOWN


def skew(ours: str, component: str, theirs: str) -> str:
    """Return a warning if a component is too far from the version of the command, else an empty string.

    Example:
        >>> skew("0.3.0", "knodel-controller", "0.2.5")
        ''
        >>> skew("0.3.0", "knodel-controller", "0.1.0")
        'knodel-controller has version 0.1.0, more than one minor version from this command (0.3.0)'
    """
    if theirs in (ours, UNKNOWN):
        return ""
    here, there = _RELEASE.match(ours), _RELEASE.match(theirs)
    if here is None or there is None:
        return f"{component} has version {theirs}, which is no release: this command has version {ours}"
    if here[1] == there[1] and abs(int(here[2]) - int(there[2])) <= SUPPORTED_SKEW:
        return ""
    return f"{component} has version {theirs}, more than one minor version from this command ({ours})"


def warnings(ours: str, components: Mapping[str, str]) -> list[str]:
    """Return the warnings about the components of an installation."""
    found = [said for name, version in sorted(components.items()) if (said := skew(ours, name, version))]
    known = {version for version in components.values() if version != UNKNOWN}
    if len(known) > 1:
        found.append(
            f"the components have different versions ({', '.join(sorted(known))}): an upgrade is in progress, or was "
            "interrupted and has to be repeated"
        )
    return found


def _tag(deployment: Object) -> str:
    """Return the tag of the first container's image; empty for an image by digest."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    name = str(containers[0].get("image", "")).rpartition("/")[2].partition("@")[0]
    return name.partition(":")[2]


def _label(deployment: Object) -> str:
    version = str(labels_of(deployment).get(LABEL_VERSION, ""))
    return "" if version == UNRELEASED else version
