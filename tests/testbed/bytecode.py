"""Byte code for the modules of an image, made when the layer is."""

from __future__ import annotations

import importlib.util
import marshal
import sys
import warnings
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import CodeType

from tests.testbed.errors import TestbedError
from tests.testbed.trees import PLAIN_MODE, REGULAR, Content, Entry, FileDigests, Tree

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
        head = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH.to_bytes(FIELD, "little")
        return head + importlib.util.source_hash(source) + marshal.dumps(self._compile(source))

    def _compile(self, source: bytes) -> CodeType:
        with warnings.catch_warnings(action="ignore"):  # of other people's modules
            try:
                return compile(source, f"/{self.path}", "exec", dont_inherit=True)
            except SyntaxError as exc:
                raise TestbedError(f"{self.path} cannot be compiled: {exc}; correct it, then make the images") from exc


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
