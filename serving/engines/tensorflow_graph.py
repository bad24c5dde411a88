"""What must be known of a SavedModel before TensorFlow runs any of it: a graph is a program. Pure.

TensorFlow restores variables and fills tables while it loads, so that even a model that nobody calls would have run.
Its security notes say not to load models that one does not trust; here those that reach for files, the network or
Python by an operator that is known for it are refused, unless code of artifacts may run anyway.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from serving.engines.errors import LoadFailed
from serving.engines.registry import OWN_SERVER

_PRINT: Final = "PrintV2"
_STREAM: Final = "output_stream"  # when absent, stderr
_PRINTS_TO: Final = frozenset({b"stdout", b"stderr", b"log(info)", b"log(warning)", b"log(error)", b""})
_REACHES_OUT: Final = re.compile(
    r"""
    (?:Read|Write)File | MatchingFiles | WholeFileReader | ImmutableConst | FileSystemSetConfiguration
    | InitializeTableFromTextFile | LoadAndRemapMatrix | GenerateVocabRemapping
    | (?:Save|SaveSlices|Restore|RestoreSlice)$                 # checkpoints of TensorFlow 1 have any name of a file
    | (?:TextLine|FixedLengthRecord|TFRecord|LMDB)Reader | DistributedSave
    | (?:Experimental)?(?:TextLine|FixedLengthRecord|TFRecord|LMDB|Sql|CSV|MatchingFiles)\w*Dataset
    | (?:Experimental)?(?:Save|Load|Snapshot|ListSnapshot|Cache|DataService|Register)\w*Dataset
    | \w*DatasetToTFRecord | DecodeProto
    | \w*(?:TRTEngine|TRTResource|TensorRT)                     # another engine, with its own ways to files
    | (?:Eager)?PyFunc | Remote | Rpc
    | Create(?:SummaryFile|SummaryDb)Writer | Debug(?:Identity|NanCount|NumericSummary)
    """,
    re.VERBOSE,
)
"""Operators, by the beginning of their names. SaveV2, RestoreV2 and MergeV2Checkpoints, which every SavedModel has, can
only touch files of TensorFlow's own checkpoint format."""


def refuse_what_reaches_out(saved_model: Any) -> None:
    """`saved_model` is the protocol buffer. Raises LoadFailed for a graph that is more than arithmetic."""
    found = sorted({node.op for node in _nodes(saved_model) if _reaches_out(node)})
    if found:
        raise LoadFailed(
            f"the graph has operators that use files, the network or Python ({', '.join(found)}): "
            f"keep vocabularies in the model itself, or {OWN_SERVER}"
        )


def _nodes(saved_model: Any) -> Iterator[Any]:
    for meta_graph in saved_model.meta_graphs:
        graph = meta_graph.graph_def
        functions: Iterable[Any] = graph.library.function
        yield from itertools.chain(graph.node, *(function.node_def for function in functions))


def _reaches_out(node: Any) -> bool:
    if node.op == _PRINT and _STREAM in node.attr:
        stream = node.attr[_STREAM]  # of a function it may be a placeholder, filled in by whoever calls it
        return stream.WhichOneof("value") != "s" or stream.s not in _PRINTS_TO
    return _REACHES_OUT.match(node.op) is not None
