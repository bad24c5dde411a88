"""NetworkPolicies as a network that enforces them reads them: may this Pod be reached, may it reach that? Pure.

Source: https://kubernetes.io/docs/concepts/services-networking/network-policies/. Ports are TCP here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from clusters.base.objects import Object, namespace_of

Labels = Mapping[str, str]
INGRESS, EGRESS = "Ingress", "Egress"
_SIDES = {INGRESS: ("ingress", "from"), EGRESS: ("egress", "to")}
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


class Pod(NamedTuple):
    """A Pod; `ports` by name, where a policy may name one."""

    namespace: str
    labels: Labels
    ports: Mapping[str, int] = {}


class Address(NamedTuple):
    """Somebody outside of the cluster's own Pods."""

    address: str


def may_be_reached(policies: Iterable[Object], pod: Pod, by: Pod | Address, port: int) -> bool:
    """Whether `by` may connect to the Pod's port."""
    return _allowed(policies, pod, INGRESS, by, port, pod)


def may_reach(policies: Iterable[Object], pod: Pod, whom: Pod | Address, port: int) -> bool:
    """Whether the Pod may connect to that port of `whom`."""
    return _allowed(policies, pod, EGRESS, whom, port, whom)


def selects(selector: Object, labels: Labels) -> bool:
    """A LabelSelector; the empty one selects all."""
    wanted = selector.get("matchLabels") or {}
    rules = selector.get("matchExpressions") or ()
    return all(labels.get(key) == value for key, value in wanted.items()) and all(_holds(one, labels) for one in rules)


def _allowed(
    policies: Iterable[Object], pod: Pod, side: str, peer: Pod | Address, port: int, listener: Pod | Address
) -> bool:
    rules_of, peers_of = _SIDES[side]
    about = [
        policy["spec"]
        for policy in policies
        if namespace_of(policy) == pod.namespace
        and side in policy["spec"]["policyTypes"]
        and selects(policy["spec"]["podSelector"], pod.labels)
    ]
    if not about:
        return True
    named = listener.ports if isinstance(listener, Pod) else {}
    return any(
        _has_port(rule, port, named)
        and (peers_of not in rule or any(_is(one, peer, pod.namespace) for one in rule[peers_of]))
        for spec in about
        for rule in spec.get(rules_of) or ()
    )


def _holds(rule: Object, labels: Labels) -> bool:
    value = labels.get(rule["key"])
    match rule["operator"]:
        case "Exists":
            return value is not None
        case "In":
            return value in rule["values"]
    raise ValueError(f"{rule['operator']}: not in our policies so far")


def _has_port(rule: Object, port: int, named: Mapping[str, int]) -> bool:
    ports = [one["port"] for one in rule.get("ports") or () if one.get("protocol", "TCP") == "TCP"]
    return not rule.get("ports") or any(port in (one, named.get(str(one))) for one in ports)


def _is(said: Object, peer: Pod | Address, namespace: str) -> bool:
    if "ipBlock" in said:
        return isinstance(peer, Address) and _within(said["ipBlock"], ipaddress.ip_address(peer.address))
    if isinstance(peer, Address):
        return False
    if "namespaceSelector" in said:
        here = selects(said["namespaceSelector"], {_NAMESPACE_NAME: peer.namespace})
    else:
        here = peer.namespace == namespace
    return here and selects(said.get("podSelector") or {}, peer.labels)


def _within(block: Object, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address in ipaddress.ip_network(block["cidr"]) and not any(
        address in ipaddress.ip_network(one) for one in block.get("except") or ()
    )
