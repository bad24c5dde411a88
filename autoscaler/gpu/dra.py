"""Devices of ResourceSlices that Pods request by the name of an extended resource, and the claims that hold them. Pure.

A DeviceClass with `extendedResourceName` stands for a resource (Dynamic Resource Allocation, `resource.k8s.io/v1`). Its
CEL selectors are not evaluated. Comparisons of `device.driver` and of an attribute with a text, joined by `&&`, are
read; a class with others is not counted, and a remark says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from autoscaler.gpu.units import Amounts
from clusters.base.objects import Key, Object, key_of, name_of

TYPE_ATTRIBUTES: Final = ("productName", "model", "type")
"""Attributes with the type of a device, best first; with the driver's domain or without it."""
_DRIVER: Final = re.compile(r"""\(?\s*device\.driver\s*==\s*(?P<quote>['"])(?P<value>[^'"]*)(?P=quote)\s*\)?""")
_ATTRIBUTE: Final = re.compile(
    r"""\(?\s*device\.attributes\[(?P<q>['"])(?P<domain>[^'"]*)(?P=q)\]\.(?P<name>\w+)\s*==\s*"""
    r"""(?P<quote>['"])(?P<value>[^'"]*)(?P=quote)\s*\)?"""
)


@dataclass(frozen=True, slots=True)
class DraObjects:
    """Objects of `resource.k8s.io/v1`."""

    slices: Sequence[Object] = ()
    classes: Sequence[Object] = ()
    claims: Sequence[Object] = ()


class DeviceId(NamedTuple):
    """The identity of a device, as allocations have it."""

    driver: str
    pool: str
    name: str


class Device(NamedTuple):
    """A device of a node: the resource by which Pods request it, and its type."""

    node: str
    resource: str
    type: str


class Held(NamedTuple):
    """A device with the claim that holds it, and the uid of the claim's first Pod; empty without Pods."""

    device: Device
    claim: Key
    pod: str


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices by node, and the devices that claims hold."""

    devices: Collection[Device] = ()
    holds: Collection[Held] = ()
    remarks: tuple[str, ...] = ()
    allocatable: dict[str, Counter[str]] = field(init=False, default_factory=dict)
    types: dict[str, dict[str, str]] = field(init=False, default_factory=dict)
    held: dict[str, Counter[str]] = field(init=False, default_factory=dict)
    """Units that Pods hold through claims, by the uid of the Pod and by resource."""

    def __post_init__(self) -> None:
        for node, resource, kind in sorted(self.devices):
            self.allocatable.setdefault(node, Counter())[resource] += 1
            types = self.types.setdefault(node, {})
            former = types.get(resource, "")
            types[resource] = kind if kind in former or not former else f"{former}, {kind}"
        for device, _, pod in self.holds:
            self.held.setdefault(pod, Counter())[device.resource] += 1

    def without_pod(self, present: Collection[str]) -> Iterator[tuple[str, Key, Amounts]]:
        """Yield (node, claim, units) for claims of which no Pod is present. `present` are uids of Pods."""
        found: dict[tuple[str, Key], Counter[str]] = {}
        for device, claim, pod in self.holds:
            if pod not in present:
                found.setdefault((device.node, claim), Counter())[device.resource] += 1
        for (node, claim), amounts in sorted(found.items()):
            yield node, claim, dict(amounts)


def read_devices(objects: DraObjects, is_counted: Callable[[str], bool]) -> Devices:
    """Return the devices of the resources for which `is_counted` is true."""
    classes, remarks = [], []
    for one in sorted(objects.classes, key=name_of):
        resource = str((one.get("spec") or {}).get("extendedResourceName") or "")
        if not resource or not is_counted(resource):
            continue
        if (wanted := _Wanted.of(one)) is None:
            remarks.append(
                f"DeviceClass {name_of(one)} is not counted: its selectors are more than comparisons of the driver and "
                f"of attributes"
            )
        else:
            classes.append((resource, wanted))
    found = {}
    for driver, pool, node, device in _newest_devices(objects.slices):
        resource = next((resource for resource, wanted in classes if wanted.matches(driver, device)), "")
        if resource:
            found[DeviceId(driver, pool, str(device.get("name", "")))] = Device(node, resource, _type_of(device))
    return Devices(found.values(), list(_holds(objects.claims, found)), tuple(remarks))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The selectors of a DeviceClass: the driver, and attributes by their names with their domain."""

    drivers: frozenset[str]
    attributes: Mapping[str, str]

    @classmethod
    def of(cls, device_class: Object) -> _Wanted | None:
        drivers, attributes = set(), {}
        for selector in (device_class.get("spec") or {}).get("selectors") or ():
            for term in str((selector.get("cel") or {}).get("expression", "")).split("&&"):
                if (match := _DRIVER.fullmatch(term.strip())) is not None:
                    drivers.add(match["value"])
                elif (match := _ATTRIBUTE.fullmatch(term.strip())) is not None:
                    attributes[f"{match['domain']}/{match['name']}"] = match["value"]
                else:
                    return None
        return cls(frozenset(drivers), attributes)

    def matches(self, driver: str, device: Object) -> bool:
        """Return whether the class selects the device. Attributes without a domain have that of the driver."""
        given = {name if "/" in name else f"{driver}/{name}": text for name, text in _texts(device).items()}
        return self.drivers <= {driver} and self.attributes.items() <= given.items()


def _newest_devices(slices: Sequence[Object]) -> Iterator[tuple[str, str, str, Object]]:
    """Yield (driver, pool, node, device). Slices of a former generation of their pool are obsolete."""
    pools: dict[tuple[str, str], list[tuple[int, Object]]] = {}
    for one in slices:
        spec = one.get("spec") or {}
        pool = spec.get("pool") or {}
        key = str(spec.get("driver", "")), str(pool.get("name", ""))
        pools.setdefault(key, []).append((int(pool.get("generation") or 0), spec))
    for (driver, name), specs in pools.items():
        newest = max(generation for generation, _ in specs)
        for generation, spec in specs:
            for device in (spec.get("devices") or ()) if generation == newest else ():
                node = str(device.get("nodeName") or spec.get("nodeName") or "")
                if node:  # devices of the network belong to no node
                    yield driver, name, node, device


def _holds(claims: Sequence[Object], devices: Mapping[DeviceId, Device]) -> Iterator[Held]:
    for claim in claims:
        status = claim.get("status") or {}
        users = [one for one in status.get("reservedFor") or () if one.get("resource") == "pods"]
        pod = str(users[0].get("uid", "")) if users else ""
        for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            identity = DeviceId(*(str(result.get(part, "")) for part in ("driver", "pool", "device")))
            if identity in devices and not result.get("adminAccess"):
                yield Held(devices[identity], key_of(claim), pod)


def _texts(device: Object) -> dict[str, str]:
    attributes = (device.get("attributes") or {}).items()
    return {name: value["string"] for name, value in attributes if isinstance(value.get("string"), str)}


def _type_of(device: Object) -> str:
    texts = {name.rpartition("/")[2]: text for name, text in _texts(device).items()}
    return next((texts[name] for name in TYPE_ATTRIBUTES if texts.get(name)), "")
