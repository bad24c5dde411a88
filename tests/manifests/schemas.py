"""Write serving/control_api/schemas.json: OpenAPI schemas of the core and Knative kinds of the embedded cluster.

`make schemas` runs this as `python -m tests.manifests.schemas` after a change of versions in `tests/testbed/modules`.
It reads the modules of Kubernetes and Knative (Apache License 2.0) from the Go module cache: `api/openapi-spec/v3` and
the CustomResourceDefinitions. One line holds one schema, so that a change of a version can be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from clusters.base.objects import INGRESS, KINDS, OWN_KINDS, SERVERLESS_SERVICE, Kind
from serving.control_api.openapi import SCHEMAS, schema_name
from tests.testbed import golang

MODULES: Final = Path(__file__).parents[1] / "testbed" / "modules"
REVISION_SPEC: Final = "dev.knative.serving.v1.RevisionSpec"
"""Schema of what the definitions of Service, Configuration and Revision repeat."""
SHARED: Final = {
    "Service": ("spec", "template", "spec"), "Configuration": ("spec", "template", "spec"), "Revision": ("spec",),
}  # fmt: skip


def main() -> None:
    """Write the file."""
    schemas = dict(sorted({**core_schemas(), **knative_schemas()}.items()))
    lines = [f"{json.dumps(name)}: {json.dumps(schema, sort_keys=True)}" for name, schema in schemas.items()]
    SCHEMAS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def core_schemas() -> dict[str, Any]:
    """Return the schemas of the kinds of Kubernetes' own groups, and of all that these refer to."""
    folder = module_folder("kubernetes", "k8s.io/kubernetes") / "api" / "openapi-spec" / "v3"
    found: dict[str, Any] = {}
    for kind in _of_kubernetes():
        path = f"apis__{kind.group}__{kind.version}" if kind.group else f"api__{kind.version}"
        known = json.loads((folder / f"{path}_openapi.json").read_text())["components"]["schemas"]
        waiting = [schema_name(kind)]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = known[name]
                waiting += references(known[name])
    return found


def knative_schemas() -> dict[str, Any]:
    """Return the schemas of Knative's kinds."""
    serving = module_folder("serving", "knative.dev/serving") / "config" / "core" / "300-resources"
    networking = module_folder("serving", "knative.dev/networking") / "config"
    found: dict[str, Any] = {}
    for kind in (kind for kind in KINDS if kind.group.endswith("knative.dev")):
        folder = networking if kind in (INGRESS, SERVERLESS_SERVICE) else serving
        text = (folder / f"{kind.kind.lower()}.yaml").read_text()
        definition = next(one for one in yaml.safe_load_all(text) if one)
        [version] = [one for one in definition["spec"]["versions"] if one["name"] == kind.version]
        schema = version["schema"]["openAPIV3Schema"]
        *path, last = SHARED.get(kind.kind, ("",))
        if last:
            holder = schema["properties"]
            for part in path:
                holder = holder[part]["properties"]
            found[REVISION_SPEC] = holder[last]
            holder[last] = {"$ref": f"#/components/schemas/{REVISION_SPEC}"}
        found[schema_name(kind)] = schema
    return found


def references(schema: Any) -> Iterator[str]:
    """Yield the names of the schemas that one refers to."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def module_folder(name: str, module: str) -> Path:
    """Return the folder of a module, in the version that the testbed builds."""
    return Path(golang.run("list", "-m", "-f", "{{.Dir}}", module, cwd=MODULES / name).strip())


def _of_kubernetes() -> Iterable[Kind]:
    return (kind for kind in KINDS if kind not in OWN_KINDS and not kind.group.endswith("knative.dev"))


if __name__ == "__main__":
    main()
