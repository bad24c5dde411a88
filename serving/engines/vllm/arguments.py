"""The options of vLLM that a Model may set, `spec.llm.engineArgs`, and their checks. Pure.

No option is here that names code or a file, opens a port, or is set by other fields of the Model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from serving.engines.base.errors import LoadFailed

SLEEP: Final = "sleep-idle-seconds"
"""Our own option: seconds without a request after which the engine gives its memory back until the next one."""
LORA_RANK: Final = "max-lora-rank"
LORAS: Final = "max-loras"
RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of vLLM's option for the largest rank of an adapter."""
MOST_LORAS: Final = 64
MEDIA_DOMAINS: Final = "allowed-media-domains"
NO_DOMAIN: Final = "none.invalid"
"""A domain that cannot exist: vLLM must not fetch URLs that callers send, unless the Model names their domains."""
LONGEST_IDLE: Final = 7 * 86_400  # s
_OURS: Final[Mapping[str, str]] = {
    "enable-lora": "set adapters",
    "enable-sleep-mode": f"set {SLEEP}",
    "lora-modules": "set adapters",
    "max-model-len": "set contextLength",
    "max-num-seqs": "set containerConcurrency",
    "served-model-name": "callers use the name of the Model",
    "tool-call-parser": "set toolParser",
    "trust-remote-code": "code of a model's author is never run",
}
"""Options that other fields set, each with what to do."""
_NAME: Final = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,62}")
_DOMAIN: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,252}[a-z0-9])?")
_SPECULATIVE: Final = ("ngram", "ngram_gpu", "mtp", "suffix")
"""Methods of speculative decoding without a model of their own, which would be a path or a download."""
_LOOKUP: Final = ("num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min")

Check = Callable[[str], Sequence[str]]
"""Returns the values of an option as vLLM gets them. Raises ValueError with what the value must be."""


class EngineArguments(NamedTuple):
    """Arguments of vLLM's command line, and the values of options from which further arguments are made; 0: not set.

    sleep_after   seconds of idleness after which the engine sleeps
    lora_rank     largest rank of adapters that can be loaded
    loras         adapters of the requests of one step
    """

    argv: Sequence[str] = ()
    sleep_after: float = 0.0
    lora_rank: int = 0
    loras: int = 0


def read_arguments(given: Sequence[tuple[str, str]]) -> EngineArguments:
    """Return the arguments for the options of a Model. Raises LoadFailed."""
    argv: list[str] = []
    numbers: dict[str, float] = {}
    for name, value in {MEDIA_DOMAINS: NO_DOMAIN, **dict(given)}.items():
        try:
            if name in _NUMBERS:
                numbers[name] = float(_NUMBERS[name](value)[0])
            else:
                argv += _arguments(name, value)
        except ValueError as error:
            raise LoadFailed(f"engineArgs: {name} {error}") from error
    return EngineArguments(argv, numbers.get(SLEEP, 0.0), int(numbers.get(LORA_RANK, 0)), int(numbers.get(LORAS, 0)))


def _arguments(name: str, value: str) -> Sequence[str]:
    """Return the arguments of one option. Raises ValueError."""
    if name in _OURS:
        raise ValueError(f"is set by the platform: {_OURS[name]}")
    if name in FLAGS:
        return [f"--{name}" if _is_true(value) else f"--no-{name}"]
    if name not in OPTIONS:
        raise ValueError(f"is not an option that a Model may set: use one of {', '.join(NAMES)}")
    first, *more = OPTIONS[name](value)
    return [f"--{name}={first}"] if not more else [f"--{name}", first, *more]


def _is_true(value: str) -> bool:
    if value not in ("", "true", "false"):
        raise ValueError(f"must be true or false, not {value[:40]!r}")
    return value != "false"


def _number(least: float, most: float) -> Check:
    def check(value: str) -> Sequence[str]:
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not least <= number <= most:
            raise ValueError(f"must be a number from {least:g} to {most:g}, not {value[:40]!r}")
        return [value.strip()]

    return check


def _whole(least: int, most: int) -> Check:
    def check(value: str) -> Sequence[str]:
        if not re.fullmatch(r"[0-9]{1,15}", value) or not least <= int(value) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}, not {value[:40]!r}")
        return [value]

    return check


def _one_of(*choices: str) -> Check:
    def check(value: str) -> Sequence[str]:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {value[:40]!r}")
        return [value]

    return check


def _name(value: str) -> Sequence[str]:
    """Check a name of vLLM's own, which differ from version to version."""
    if not _NAME.fullmatch(value):
        raise ValueError(f"must be at most 63 letters, digits, '-', '_' and '.', not {value[:80]!r}")
    return [value]


def _domains(value: str) -> Sequence[str]:
    domains = [one.strip() for one in value.split(",")]
    if not all(_DOMAIN.fullmatch(one) for one in domains):
        raise ValueError(f"must be names of hosts with ',' between them, not {value[:80]!r}")
    return domains


def _object(value: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"must be a JSON object, not {value[:80]!r}")
    return found


def _json(value: str) -> Sequence[str]:
    return [json.dumps(_object(value))]


def _speculative(value: str) -> Sequence[str]:
    found = _object(value)
    method = found.pop("method", None)
    if method not in _SPECULATIVE:
        raise ValueError(f"must have a method of {', '.join(_SPECULATIVE)}, not {str(method)[:40]!r}")
    for key, number in found.items():
        if key not in _LOOKUP or type(number) is not int or not 1 <= number <= 64:
            raise ValueError(f"has only {', '.join(_LOOKUP)} beside its method, each from 1 to 64")
    return [json.dumps({"method": method, **found})]


OPTIONS: Final[Mapping[str, Check]] = {
    MEDIA_DOMAINS: _domains,
    "attention-backend": _name,
    "block-size": _whole(1, 1024),
    "chat-template-content-format": _one_of("auto", "openai", "string"),
    "config-format": _name,
    "cpu-offload-gb": _number(0, 10_000),
    "default-chat-template-kwargs": _json,
    "dtype": _one_of("auto", "bfloat16", "float", "float16", "float32", "half"),
    "generation-config": _one_of("auto", "vllm"),
    "gpu-memory-utilization": _number(0.01, 1),
    "kv-cache-dtype": _name,
    "kv-cache-memory-bytes": _whole(1, 1 << 48),
    "kv-offloading-size": _number(0, 10_000),
    "limit-mm-per-prompt": _json,
    "logprobs-mode": _one_of("processed_logits", "processed_logprobs", "raw_logits", "raw_logprobs"),
    "max-logprobs": _whole(0, 1000),
    "max-num-batched-tokens": _whole(1, 10_000_000),
    "mm-processor-cache-gb": _number(0, 1000),
    "model-impl": _one_of("auto", "transformers", "vllm"),
    "optimization-level": _whole(0, 3),
    "override-generation-config": _json,
    "performance-mode": _one_of("balanced", "interactivity", "throughput"),
    "pipeline-parallel-size": _whole(1, 64),
    "quantization": _name,
    "reasoning-parser": _name,
    "scheduling-policy": _one_of("fcfs", "priority"),
    "seed": _whole(0, (1 << 31) - 1),
    "speculative-config": _speculative,
    "stream-interval": _whole(1, 1000),
    "tensor-parallel-size": _whole(1, 64),
    "tokenizer-mode": _name,
}
_NUMBERS: Final[Mapping[str, Check]] = {
    LORA_RANK: _one_of(*map(str, RANKS)), LORAS: _whole(1, MOST_LORAS), SLEEP: _number(0, LONGEST_IDLE)
}  # fmt: skip
"""Options from which the program makes arguments together with other fields."""
FLAGS: Final = (
    "async-scheduling", "disable-custom-all-reduce", "disable-sliding-window", "enable-chunked-prefill",
    "enable-expert-parallel", "enable-force-include-usage", "enable-prefix-caching", "enable-prompt-tokens-details",
    "enforce-eager", "language-model-only",
)  # fmt: skip
"""Options that are true or false."""
NAMES: Final = tuple(sorted((*OPTIONS, *FLAGS, *_NUMBERS)))
