"""Byte code for the modules of an image, made when the layer is."""

from __future__ import annotations

import importlib.util
import marshal
import sys
import warnings
from dataclasses import dataclass
from pathlib import PurePosixPath

from tests.testbed.layers import PLAIN_MODE, REGULAR, Content, Entry, FileDigests, Tree

UNCHECKED_HASH = 0b01
"""Flags of a .pyc that is never compared with its source (PEP 552)."""
FIELD = 4
"""bytes of the flags."""


@dataclass(frozen=True, slots=True)
class Bytecode:
    """The .pyc of a module whose source lies at `/path` in the image, as tracebacks shall name it."""

    source: Content
    path: str

    def identity(self, digests: FileDigests) -> str:
        return f"{sys.version} {self.path} {self.source.identity(digests)}"

    def read(self) -> bytes:
        source = self.source.read()
        with warnings.catch_warnings(action="ignore"):  # of other people's modules
            code = compile(source, f"/{self.path}", "exec", dont_inherit=True)
        head = (
            importlib.util.MAGIC_NUMBER + UNCHECKED_HASH.to_bytes(FIELD, "little") + importlib.util.source_hash(source)
        )
        return head + marshal.dumps(code)


def with_bytecode(tree: Tree) -> dict[str, Entry]:
    """The tree with a `__pycache__` entry for each of its modules."""
    made = {
        _cached(path): Entry(REGULAR, PLAIN_MODE, Bytecode(entry.content, path))
        for path, entry in tree.items()
        if path.endswith(".py") and entry.content
    }
    return {**tree, **made}


def _cached(path: str) -> str:
    source = PurePosixPath(path)
    return str(source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc")
