"""Check the graph of a SavedModel before TensorFlow runs any of it: a graph is a program. Pure.

TensorFlow restores variables and fills tables while it loads a model, so an operator can run before the first request.
Operators without state are pure functions, apart from a few. Operators with state are refused unless they are listed.
Every SavedModel has operators for checkpoints: they are accepted where only the model's own saver can run them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from serving.engines.base.errors import LoadFailed
from serving.engines.base.registry import OWN_SERVER

IsStateful = Callable[[str], bool]
"""Whether TensorFlow declares an operator as one with state; False for names that it does not know."""

_PRINT: Final = "PrintV2"
_STREAM: Final = "output_stream"  # when absent, stderr
_PRINTS_TO: Final = frozenset({b"stdout", b"stderr", b"log(info)", b"log(warning)", b"log(error)", b""})

_RESTORE: Final = "RestoreV2"
_CHECKPOINT: Final = frozenset({"SaveV2", "MergeV2Checkpoints", _RESTORE})
_SAVERS: Final = "savers"  # a collection that names the savers' nodes; nothing that loads a SavedModel reads it

_KEEPS_STATE_IN_MEMORY: Final = re.compile(
    r"""
    (?: Assert | Print | PrintV2 | CheckNumerics(?:V2)? | Timestamp | Empty | DeepCopy | GuaranteeConst | DeviceIndex
    | If | While | Case | StatefulPartitionedCall
    | VarHandleOp | VarIsInitializedOp | Variable(?:V2)? | VariableShape | TemporaryVariable | ReadVariableOp
    | Assign(?:Add|Sub)?VariableOp | DestroyResourceOp | DisableCopyOnRead
    | Resource(?:Gather\w*|Scatter\w+|StridedSliceAssign|CountUpTo|Apply\w+|SparseApply\w+|\w*Accumulator\w*)
    | (?:Sparse)?ConditionalAccumulator
    | (?:Anonymous)?(?:Mutable(?:Dense)?)?HashTable(?:OfTensors)?(?:V2)? | LookupTable\w+V2
    | InitializeTable(?:V2|FromDataset)
    | TensorArray\w* | Stack(?:(?:Close|Push|Pop)?V2)? | \w*FIFOQueue(?:V2)? | PriorityQueue(?:V2)?
    | RandomShuffleQueue(?:V2)? | Queue\w+V2 | FakeQueue | Barrier | MutexV2 | MutexLock | ConsumeMutexLock
    | (?:OrderedMap|Map)?(?:Stage|Unstage|UnstageNoKey|Peek|Size|IncompleteSize|Clear) | Stage(?:Peek|Size|Clear)
    | (?:AddMany|Add|TakeMany)Sparse(?:To|From)TensorsMap
    | Random(?!Dataset)\w+ | Stateful(?:Random|Standard|Truncated|Uniform)\w* | StatelessRandomGetAlg | Multinomial
    | NonDeterministicInts | Rng(?:ReadAndSkip|Skip) | TruncatedNormal | ParameterizedTruncatedNormal
    | SampleDistortedBoundingBox(?:V2)? | (?:Anonymous|Dummy|Delete)(?:Random)?SeedGenerator
    | (?:All|LearnedUnigram|LogUniform|ThreadUnsafeUnigram|Uniform)CandidateSampler  # FixedUnigram can read a file
    | (?:Tensor|TensorSlice|SparseTensorSlice|Range|Generator|Reduce|(?:Experimental)?GroupByReducer)Dataset
    | (?:Experimental)?RandomDataset(?:V2)? | Shuffle(?:AndRepeat)?Dataset(?:V[23])? | GlobalShuffleDataset
    | ListDataset | DatasetToSingleElement | Iterator(?:V2|GetNext\w*)? | (?:Make|OneShot|Delete)Iterator
    | AnonymousIterator(?:V[23])?
    | CudnnRNN\w* | (?:Is)?BoostedTrees\w+
    )$
    """,
    re.VERBOSE,
)
"""Operators with state that touch nothing outside of the process. New ones are refused until they are listed here."""

_UNSAFE: Final = re.compile(
    r"""
    _(?!EagerConst$)                                           # TensorFlow's own, which no program writes into a graph
    | (?:Read|Write)File | MatchingFiles | WholeFileReader | ImmutableConst | (?:Encode|Decode)Proto | Copy(?:Host)?$
    | InitializeTableFromTextFile | GenerateVocabRemapping | Reader(?:Read|Restore)
    | (?:Experimental)?(?:Cache|Snapshot|Register)\w*Dataset | DatasetFromGraph  # the last one runs a graph from a text
    | (?:TextLine|FixedLengthRecord|TFRecord|LMDB)Reader | \w*DatasetToTFRecord
    | \w*(?:TRTEngine|TRTResource|TensorRT)                    # another engine, with its own ways to files
    | PyFunc | Remote | Rpc | XlaCustomCall | MlirPassthrough | Abort$
    | Debug(?:Identity|NanCount|NumericSummary)
    """,
    re.VERBOSE,
)
"""Operators without state that are more than a function of their inputs, by the beginning of their names; and some with
state, which another release may declare as without."""


def refuse_unsafe_operators(saved_model: Any, is_stateful: IsStateful) -> None:
    """Refuse a graph that can use files, the network or Python; `saved_model` is the protocol buffer.

    Raises LoadFailed.
    """
    found = sorted({op for meta_graph in saved_model.meta_graphs for op in _refused(meta_graph, is_stateful)})
    if found:
        raise LoadFailed(
            f"the graph has operators that may use files, the network or Python ({', '.join(found)}): "
            f"keep vocabularies in the model itself, or {OWN_SERVER}"
        )


def _refused(meta_graph: Any, is_stateful: IsStateful) -> Iterator[str]:
    graph = meta_graph.graph_def
    own_nodes = _nodes_of_the_saver(meta_graph)
    own_functions = _functions_of_the_saver(meta_graph)
    for node in graph.node:
        if node.name not in own_nodes and _is_unsafe(node, is_stateful):
            yield node.op
    for function in graph.library.function:
        for node in function.node_def:
            is_own = node.op in _CHECKPOINT and function.signature.name in own_functions
            if not is_own and _is_unsafe(node, is_stateful):
                yield node.op


def _is_unsafe(node: Any, is_stateful: IsStateful) -> bool:
    if node.op == _PRINT and _STREAM in node.attr:
        stream = node.attr[_STREAM]  # of a function it may be a placeholder, filled in by its caller
        return stream.WhichOneof("value") != "s" or stream.s not in _PRINTS_TO
    if node.op in _CHECKPOINT or _UNSAFE.match(node.op):
        return True
    return is_stateful(node.op) and _KEEPS_STATE_IN_MEMORY.match(node.op) is None


def _functions_of_the_saver(meta_graph: Any) -> frozenset[str]:
    """Return the functions that the saver's two nodes reach and nothing else does; none for a model of TensorFlow 1.

    TensorFlow 2 loads the functions of such a model, restores variables by itself, and runs no node of the main graph.
    """
    if not meta_graph.HasField("object_graph_def"):
        return frozenset()
    saver = meta_graph.saver_def
    names = {_node_name(saver.save_tensor_name), _node_name(saver.restore_op_name)}
    graph = meta_graph.graph_def
    calls = {function.signature.name: _called(function.node_def) for function in graph.library.function}
    own = _reached(_called(node for node in graph.node if node.name in names), calls)
    others = {name for name in calls if name not in own} | set(meta_graph.object_graph_def.concrete_functions)
    others |= _called(node for node in graph.node if node.name not in names)
    return frozenset(own - _reached(others, calls))


def _called(nodes: Iterable[Any]) -> set[str]:
    """Return the functions that the nodes name, as operators or as attributes."""
    found = set()
    for node in nodes:
        found.add(node.op)
        for value in node.attr.values():
            found.update(function.name for function in _function_attributes(value))
    return found


def _function_attributes(value: Any) -> Iterator[Any]:
    functions = (*value.list.func, *((value.func,) if value.WhichOneof("value") == "func" else ()))
    for function in functions:
        yield function
        for inner in function.attr.values():
            yield from _function_attributes(inner)


def _nodes_of_the_saver(meta_graph: Any) -> frozenset[str]:
    """Return the checkpoint nodes of a model of TensorFlow 1 that only its saver uses.

    A node that restores reads from the path that the loader passes; one that saves is never run. The nodes that depend
    on them are not outputs of a signature, not initializers, and not named by any other collection.
    """
    if meta_graph.HasField("object_graph_def"):
        return frozenset()
    nodes = meta_graph.graph_def.node
    users: defaultdict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for source in node.input:
            users[_node_name(source)].add(node.name)
    saver = meta_graph.saver_def
    path, restore = _node_name(saver.filename_tensor_name), _node_name(saver.restore_op_name)
    served, described = _served_names(meta_graph)
    own = set()
    for node in nodes:
        if node.op not in _CHECKPOINT:
            continue
        reached = _reached({node.name}, users)
        if reached & served or any(name.encode() in text for name in reached for text in described):
            continue
        restores = node.op == _RESTORE and bool(node.input) and _node_name(node.input[0]) == path
        if restores or (node.op != _RESTORE and restore not in reached):
            own.add(node.name)
    return frozenset(own)


def _served_names(meta_graph: Any) -> tuple[frozenset[str], tuple[bytes, ...]]:
    """Return the nodes that signatures and collections name, and the messages in collections, which name others."""
    names: set[str] = set()
    messages: list[bytes] = []
    for signature in meta_graph.signature_def.values():
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            sparse = info.coo_sparse
            parts = (part.name for part in info.composite_tensor.components)
            tensors = (info.name, sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name)
            names.update(map(_node_name, (*tensors, *parts)))
    for key, collection in meta_graph.collection_def.items():
        if key != _SAVERS:
            names.update(map(_node_name, collection.node_list.value))
            messages += [*collection.bytes_list.value, *(any_.value for any_ in collection.any_list.value)]
    return frozenset(names), tuple(messages)


def _reached(start: Iterable[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [*start]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += edges.get(name, ())
    return found


def _node_name(tensor: str) -> str:
    """Return the node of a tensor's name or of a control input: `^a` and `a:1` give `a`."""
    return tensor.removeprefix("^").partition(":")[0]
