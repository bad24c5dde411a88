"""`make sbom`: what an installation of Knodel consists of, with all its extras, as CycloneDX 1.6 in JSON.

Read from what is installed here by the constraints, so it says what was tested. Tools of developers are no part of it.
Specification: https://cyclonedx.org/docs/1.6/json/.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

ROOT = "knodel"
DEVELOPERS = frozenset({"dev", "docs", "load"})
"""Extras whose packages nobody gets who installs Knodel."""
NOT_HERE = "knodel:not-installed"
"""Property of the document: extras that were not installed where it was made, and so are not in it."""
LONGEST_LICENSE = 100
"""Characters; some packages have the whole text of their licence in that field."""


class Package(NamedTuple):
    """An installed package, and the names of those that it needs here."""

    found: Distribution
    needs: frozenset[str]


def packages(extras: frozenset[str]) -> dict[str, Package]:
    """Name → package, of Knodel with these extras and of all that follow.

    Raises PackageNotFoundError when one that is needed is not installed.
    """
    found: dict[str, Package] = {}
    asked: dict[str, frozenset[str]] = {}
    waiting = [(ROOT, extras)]
    while waiting:
        name, wanted = waiting.pop()
        known = asked.get(name, frozenset())
        if name in found and wanted <= known:
            continue
        asked[name] = known | wanted
        there = distribution(name)
        needed = list(_needed(there, asked[name]))
        found[name] = Package(there, frozenset(one for one, _ in needed))
        waiting += needed
    return found


def extras_of(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """The extras of a package that are not its developers': (installed whole, not)."""
    every = set(distribution(name).metadata.get_all("Provides-Extra") or ()) - DEVELOPERS
    here = {one for one in every if _is_whole(name, one)}
    return frozenset(here), frozenset(every - here)


def make_bom() -> Bom:
    """The document."""
    here, missing = extras_of(ROOT)
    found = packages(here)
    components = {name: _component(name, one.found) for name, one in sorted(found.items())}
    bom = Bom()
    bom.metadata.component = components[ROOT]
    bom.metadata.properties.update(Property(name=NOT_HERE, value=one) for one in missing)
    bom.components.update(one for name, one in components.items() if name != ROOT)
    for name, one in found.items():
        bom.register_dependency(components[name], [components[other] for other in sorted(one.needs)])
    return bom


def write_bom(path: Path) -> int:
    """Write it; how many components it has."""
    bom = make_bom()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(JsonV1Dot6(bom).output_as_string(indent=2) + "\n")
    return len(bom.components)


def canonical(name: str) -> str:
    """A package's name as indexes have it (https://packaging.python.org/en/latest/specifications/name-normalization/)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _needed(there: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for text in there.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonical(requirement.name), frozenset(requirement.extras)


def _is_whole(name: str, extra: str) -> bool:
    try:
        packages_of = [distribution(one) for one, _ in _needed(distribution(name), frozenset({extra}))]
    except PackageNotFoundError:
        return False
    return bool(packages_of)


def _component(name: str, found: Distribution) -> Component:
    own = name == ROOT
    purl = PackageURL("pypi", None, name, found.version)
    made = Component(
        name=name,
        version=found.version,
        type=ComponentType.APPLICATION if own else ComponentType.LIBRARY,
        purl=purl,
        bom_ref=str(purl),
        description=found.metadata["Summary"] if own else None,
    )
    if license_of := _license(found):
        factory = LicenseFactory()
        made.licenses.add(factory.make_from_string(license_of))
    return made


def _license(found: Distribution) -> str:
    """As the package says it: an SPDX expression, else a short text, else what its classifiers say."""
    said = found.metadata
    text = str(said["License-Expression"] or said["License"] or "").strip()
    if text and "\n" not in text and len(text) <= LONGEST_LICENSE:
        return text
    names = [one.rpartition(" :: ")[2] for one in said.get_all("Classifier") or () if one.startswith("License ::")]
    return names[0] if names else ""


def main(arguments: list[str]) -> int:
    """Write it to the path that is given."""
    path = Path(arguments[0])
    print(f"{path}: {write_bom(path)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
