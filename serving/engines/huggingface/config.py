"""Read what the JSON files of a Hugging Face folder say of its task: labels, lengths, pooling.

Nothing in the folder is run. A folder whose `config.json` names code (`auto_map`) is refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from serving.engines.base.errors import LoadFailed

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

CONFIG: Final = "config.json"
TOKENIZER: Final = "tokenizer.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
PREPROCESSOR: Final = "preprocessor_config.json"
MODULES: Final = "modules.json"
"""The parts of a model of sentence-transformers, in order."""
_SPECIAL_TOKENS: Final = "special_tokens_map.json"
_SENTENCE: Final = "sentence_bert_config.json"
_PROMPTS: Final = "config_sentence_transformers.json"

EXPORT: Final = "export it with `optimum-cli export onnx --model FOLDER OUT`"
"""The remedy for a model that is not served as it is."""
CLASSIFY_TEXT: Final = "text-classification"
CLASSIFY_WORDS: Final = "token-classification"
FILL_MASK: Final = "fill-mask"
CLASSIFY_IMAGE: Final = "image-classification"
EMBEDDINGS: Final = "feature-extraction"
_TASKS: Final = {
    "ForSequenceClassification": CLASSIFY_TEXT,
    "ForTokenClassification": CLASSIFY_WORDS,
    "ForMaskedLM": FILL_MASK,
    "ForImageClassification": CLASSIFY_IMAGE,
    "Model": EMBEDDINGS,
}
"""The task by the end of the architecture's name."""

SOFTMAX, SIGMOID, IDENTITY = "softmax", "sigmoid", "identity"
MEAN, CLS, MAX = "mean", "cls", "max"
_POOLING: Final = {
    "pooling_mode_mean_tokens": MEAN, "pooling_mode_cls_token": CLS, "pooling_mode_max_tokens": MAX,
}  # fmt: skip
_POOLING_PREFIX: Final = "pooling_mode_"

MAX_JSON: Final = 4 << 20  # bytes; the labels of ImageNet-22k take 1 MiB
MAX_TOKENIZER: Final = 64 << 20  # bytes; those of 250 000 tokens take 17 MiB
DEFAULT_LENGTH: Final = 512  # tokens, for a model that names no bound, as BERT
_NO_LENGTH: Final = 1 << 24  # tokens; transformers writes 1e30 for none
_MAX_LABELS: Final = 100_000
_SHIFTED: Final = frozenset({"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer"})
"""Types of models whose positions begin after the padding's id."""
_ACTIVATIONS: Final = {"Identity": IDENTITY, "Sigmoid": SIGMOID}


class Pooling(msgspec.Struct, frozen=True):
    """How an embedding is made of the tokens' vectors: `mode`, whether it has the length 1, and a text put first."""

    mode: str = MEAN
    normalize: bool = True
    prompt: str = ""


class FolderConfig(msgspec.Struct, frozen=True):
    """The configuration of a folder.

    task         as transformers' pipelines call it
    labels       of a classification, by index
    activation   turns logits into scores: softmax, sigmoid or identity
    max_length   tokens of one text; longer texts are cut
    pad          the id of the padding token; None if no file names it
    specials     special tokens by their role (`mask_token`)
    pooling      of embeddings
    any_size     whether embeddings may be shortened (Matryoshka)
    """

    task: str
    labels: tuple[str, ...] = ()
    activation: str = SOFTMAX
    max_length: int = DEFAULT_LENGTH
    pad: int | None = None
    specials: Mapping[str, str] = {}
    pooling: Pooling = Pooling()
    any_size: bool = False


def read_config(artifact: Artifact) -> FolderConfig:
    """Return the configuration in the files of a folder. Raises LoadFailed, StorageError."""
    names = frozenset(artifact.names())
    config = read_object(artifact, CONFIG)
    if config.get("auto_map"):
        raise LoadFailed(
            f"{artifact.uri}: {CONFIG} has auto_map, code of the model's author, which is not run: use a model of an "
            "architecture of transformers itself, or serve the code with --format python"
        )
    modules = _read_modules(artifact) if MODULES in names else None
    task = EMBEDDINGS if modules is not None else _task_of(config, artifact.uri)
    tokenizer = {**_read_if(artifact, names, _SPECIAL_TOKENS), **_read_if(artifact, names, TOKENIZER_CONFIG)}
    labels = _labels(config, artifact.uri) if task.endswith("classification") else ()
    return FolderConfig(
        task,
        labels,
        _activation(config, len(labels), artifact.uri),
        _max_length(config, tokenizer, _read_if(artifact, names, _SENTENCE)),
        _integer(config.get("pad_token_id")),
        {role: text for role, given in tokenizer.items() if role.endswith("_token") and (text := _token(given))},
        Pooling() if modules is None else _pooling(artifact, names, modules),
        bool(config.get("is_matryoshka") or config.get("matryoshka_dimensions")),
    )


def known_task(config: Mapping[str, Any]) -> str:
    """Return the task of a configuration's architecture; "" if there is none."""
    given = config.get("architectures")
    name = given[0] if isinstance(given, list) and given and isinstance(given[0], str) else ""
    return next((task for end, task in _TASKS.items() if name.endswith(end)), "")


def read_object(artifact: Artifact, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of at most `MAX_JSON` bytes. Raises LoadFailed, StorageError."""
    found = _decode(artifact, name)
    if not isinstance(found, dict):
        raise LoadFailed(f"{artifact.uri}: {name} is not a JSON object: export the model again")
    return found


def read_bounded(artifact: Artifact, name: str, most: int) -> bytes:
    """Return the content of a file of at most `most` bytes. Raises LoadFailed, StorageError."""
    size = 0
    with suppress(OSError):
        size = (artifact.path / name).stat().st_size
    content = artifact.read(name) if size <= most else b""
    if max(size, len(content)) > most:
        raise LoadFailed(f"{artifact.uri}: {name} has {max(size, len(content))} bytes, more than {most}")
    return content


def _decode(artifact: Artifact, name: str) -> Any:
    content = read_bounded(artifact, name, MAX_JSON)
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LoadFailed(f"{artifact.uri}: {name} is not valid JSON ({error}): export the model again") from error


def _read_if(artifact: Artifact, names: frozenset[str], name: str) -> dict[str, Any]:
    return read_object(artifact, name) if name in names else {}


def _task_of(config: Mapping[str, Any], uri: str) -> str:
    given = config.get("architectures")
    if not isinstance(given, list) or not given or not isinstance(given[0], str):
        raise LoadFailed(f"{uri}: {CONFIG} has no architectures, which give the task: save the model again")
    task = known_task(config)
    if task:
        return task
    raise LoadFailed(f"{uri}: no task for the architecture {given[0][:80]!r}: use one of …{', …'.join(_TASKS)}")


def _labels(config: Mapping[str, Any], uri: str) -> tuple[str, ...]:
    given = config.get("id2label")
    if given is None:
        count = _integer(config.get("num_labels", 2))
        if count is None or not 0 < count <= _MAX_LABELS:
            raise LoadFailed(f"{uri}: num_labels in {CONFIG} is not a number of labels from 1 to {_MAX_LABELS}")
        return tuple(f"LABEL_{index}" for index in range(count))
    named = [given.get(str(index)) for index in range(len(given))] if isinstance(given, dict) else []
    labels = tuple(label for label in named if isinstance(label, str))
    if not labels or len(labels) < len(named):
        raise LoadFailed(
            f"{uri}: id2label in {CONFIG} is not an object of labels by index, from 0: save the model again"
        )
    return labels


def _activation(config: Mapping[str, Any], labels: int, uri: str) -> str:
    kind = config.get("problem_type")
    if kind == "regression":
        return IDENTITY
    if kind == "multi_label_classification":
        return SIGMOID
    if labels != 1:
        return SOFTMAX
    nested = config.get("sentence_transformers")  # of cross-encoders
    named = nested.get("activation_fn") if isinstance(nested, dict) else None
    named = named or config.get("sbert_ce_default_activation_function")
    if named is None:
        return SIGMOID
    found = _ACTIVATIONS.get(str(named).rpartition(".")[2])
    if found is None:
        raise LoadFailed(f"{uri}: unknown activation {str(named)[:80]!r} in {CONFIG}: use Sigmoid or Identity")
    return found


def _max_length(config: Mapping[str, Any], tokenizer: Mapping[str, Any], sentence: Mapping[str, Any]) -> int:
    """Return the least of the bounds that the files name."""
    positions = _integer(config.get("max_position_embeddings"))
    if positions is not None and config.get("model_type") in _SHIFTED:
        positions -= (_integer(config.get("pad_token_id")) or 0) + 1
    given = (positions, _integer(tokenizer.get("model_max_length")), _integer(sentence.get("max_seq_length")))
    return min((length for length in given if length is not None and 0 < length < _NO_LENGTH), default=DEFAULT_LENGTH)


def _read_modules(artifact: Artifact) -> Sequence[tuple[str, str]]:
    """Return kind and folder of each module of sentence-transformers."""
    found = _decode(artifact, MODULES)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise LoadFailed(f"{artifact.uri}: {MODULES} is not a list of modules: save the model again")
    return [(str(one.get("type", "")).rpartition(".")[2], str(one.get("path", ""))) for one in found]


def _pooling(artifact: Artifact, names: frozenset[str], modules: Sequence[tuple[str, str]]) -> Pooling:
    kinds = [kind for kind, _ in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        shown = ", ".join(kinds)[:200]
        raise LoadFailed(
            f"{artifact.uri}: {MODULES} has the modules {shown}: only Transformer, Pooling and Normalize are served"
        )
    file = posixpath.join(modules[1][1], CONFIG)
    if file not in names:
        raise LoadFailed(f"{artifact.uri} has no file {file}, which {MODULES} names: copy the whole folder")
    given = read_object(artifact, file)
    modes = [name for name, on in given.items() if name.startswith(_POOLING_PREFIX) and on is True]
    if len(modes) != 1 or modes[0] not in _POOLING:
        shown = ", ".join(modes)[:200] or "none"
        raise LoadFailed(f"{artifact.uri}: {file} has the pooling {shown}: one of {', '.join(_POOLING)} is served")
    prompts = _read_if(artifact, names, _PROMPTS)
    named, texts = prompts.get("default_prompt_name"), prompts.get("prompts")
    prompt = texts.get(named) if isinstance(texts, dict) and named is not None else None
    return Pooling(_POOLING[modes[0]], kinds[-1] == "Normalize", prompt if isinstance(prompt, str) else "")


def _token(given: Any) -> str:
    """Return the text of a special token, which is a string or an object."""
    text = given.get("content") if isinstance(given, dict) else given
    return text if isinstance(text, str) else ""


def _integer(given: Any) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) else None
