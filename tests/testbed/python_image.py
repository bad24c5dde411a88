"""What the Python images of Knodel hold, layer by layer: this machine's interpreter, dependencies, our packages.

The interpreter is the one that runs this, without what only developers need; a dependency is taken as it is installed.
Every module comes with its byte code, since the root file system of a container is read-only; the byte code is not
checked against the time of its source, since all files of an image have the same.
"""

from __future__ import annotations

import os
import ssl
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.testbed.bytecode import with_bytecode
from tests.testbed.errors import TestbedError
from tests.testbed.libraries import is_binary, needed
from tests.testbed.trees import Entry, Tree, data, folder, link, stored

CHECKOUT = Path(__file__).parents[2]
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
LIBRARY = PurePosixPath("usr/local/lib") / PYTHON
SITE = LIBRARY / "site-packages"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
ENVIRONMENT = {
    "HOST": "0.0.0.0",  # the pod's own address: who may reach it is for the cluster to say
    "HOME": "/tmp",  # the only folder that can be written to
    "ORT_DISABLE_TELEMETRY": "1",
    "PATH": "/usr/local/bin",
    "PYTHONUNBUFFERED": "1",
    "SSL_CERT_FILE": f"/{CERTIFICATES}",
}
ACCOUNTS: dict[str, Entry] = {
    "etc/passwd": data("root:x:0:0:root:/:/none\nnonroot:x:65532:65532:nonroot:/tmp:/none\n"),
    "etc/group": data("root:x:0:\nnonroot:x:65532:\n"),
    "etc/nsswitch.conf": data("passwd: files\ngroup: files\nhosts: files dns\n"),
    "tmp": folder(0o1777),
}
DEVELOPERS_MODULES = frozenset(
    {
        *("test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "distutils", "pydoc_data"),
        *("site-packages", "dist-packages", "__pycache__"),
    }
)
"""Folders of the standard library that no server imports, and those that hold what is not the library's."""
TERMINAL_EXTENSIONS = (
    "_tkinter",
    "_curses",
    "readline",
    "_gdbm",
    "_dbm",
    "nis",
    "ossaudiodev",
    "_test",
    "_ctypes_test",
)
"""Extension modules for terminals, old databases and CPython's own tests; each would bring libraries."""
SOURCES_OF_EXTENSIONS = frozenset(
    {".a", ".c", ".cpp", ".f", ".f90", ".h", ".hpp", ".pxd", ".pxi", ".pyc", ".pyi", ".pyx"}
)
TOOLS_OF_PACKAGES = (
    *("numpy/distutils", "numpy/_core/include"),
    *("onnxruntime/quantization", "onnxruntime/tools", "onnxruntime/transformers"),
)
"""Tools for people that travel with a dependency: a tenth of its modules, never imported by serving."""


def interpreter() -> Tree:
    """Python with its standard library, the libraries it loads, accounts and certificates."""
    source = Path(os.__file__).parent
    program = Path(sys.base_prefix, "bin", PYTHON).resolve()
    modules = {str(LIBRARY / path.relative_to(source)): path for path in _standard_library(source)}
    tree = {path: stored(file) for path, file in modules.items()}
    tree |= {f"usr/local/bin/{PYTHON}": stored(program), "usr/local/bin/python": link(PYTHON)}
    tree |= needed([program, *_binaries(modules.values())])
    bundle = _certificates()
    return with_bytecode(tree) | ACCOUNTS | ({CERTIFICATES: stored(bundle)} if bundle else {})


def dependencies(extras: Iterable[str], below: Tree) -> Tree:
    """The distributions that Knodel's base and these extras require, as installed here, beyond what is `below`.

    Raises TestbedError for one that is not installed.
    """
    tree: dict[str, Entry] = {}
    files: list[Path] = []
    for distribution in distributions(extras).values():
        for name, file in _installed_files(distribution):
            tree[str(SITE / name)] = stored(file)
            files.append(file)
    tree |= needed(_binaries(files), own=[Path(sysconfig.get_path("platlib"))])
    return {path: entry for path, entry in with_bytecode(tree).items() if path not in below}


def application(checkout: Path = CHECKOUT) -> Tree:
    """Our packages as the wheel would hold them, with the metadata that tells the version."""
    project = _project(checkout)
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    paths = (path for package in packages for path in (checkout / package).rglob("*"))
    kept = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
    tree = {str(SITE / path.relative_to(checkout)): stored(path) for path in kept}
    name, version = project["project"]["name"], project["project"]["version"]
    described = data(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return with_bytecode(tree | {str(SITE / f"{name}-{version}.dist-info" / "METADATA"): described})


def version(checkout: Path = CHECKOUT) -> str:
    """The version of this checkout."""
    return str(_project(checkout)["project"]["version"])


def _project(checkout: Path) -> dict[str, Any]:
    return tomllib.loads((checkout / "pyproject.toml").read_text())


def _standard_library(source: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(source):
        folders[:] = [name for name in folders if name not in DEVELOPERS_MODULES and not name.startswith("config-")]
        yield from (Path(root, name) for name in names if _serves(Path(name)))


def _serves(module: Path) -> bool:
    developers = module.suffix == ".so" and module.name.startswith(TERMINAL_EXTENSIONS)
    return not developers and module.suffix not in SOURCES_OF_EXTENSIONS


def _binaries(files: Iterable[Path]) -> list[Path]:
    return [path for path in files if ".so" in path.name and is_binary(path)]


def _certificates() -> Path | None:
    known = ssl.get_default_verify_paths().cafile
    candidates = [*([Path(known)] if known else []), Path("/", CERTIFICATES), Path("/etc/pki/tls/certs/ca-bundle.crt")]
    return next((path.resolve() for path in candidates if path.exists()), None)


def _requirements(extras: Iterable[str]) -> list[Requirement]:
    project = _project(CHECKOUT)["project"]
    optional = project["optional-dependencies"]
    found = [Requirement(text) for text in project["dependencies"]]
    waiting = list(extras)
    while waiting:
        for requirement in map(Requirement, optional[waiting.pop()]):
            if requirement.name == project["name"]:  # such as knodel[server]
                waiting += requirement.extras
            else:
                found.append(requirement)
    return found


def distributions(extras: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Name → distribution that Knodel's base and these extras require. Raises TestbedError for one that is absent."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[str] = set()
    queue = _requirements(extras)
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        found[name] = distribution = _distribution(requirement.name)
        wanted = ["", *requirement.extras]
        further = [Requirement(text) for text in distribution.requires or ()]
        queue += [one for one in further if not one.marker or any(one.marker.evaluate({"extra": e}) for e in wanted)]
    return dict(sorted(found.items()))


def _distribution(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError as exc:
        raise TestbedError(f"{name} is not installed here, and Knodel's images need it: run `make setup`") from exc


def _installed_files(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    for file in distribution.files or ():
        name = str(file)
        unwanted = {"..", "tests", "__pycache__"}.intersection(file.parts) or name.startswith(TOOLS_OF_PACKAGES)
        if not unwanted and file.suffix not in SOURCES_OF_EXTENSIONS:
            yield name, Path(str(file.locate()))
