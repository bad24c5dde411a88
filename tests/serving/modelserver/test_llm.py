"""Options of a language model: from the command line and load calls to the engine, with the files of adapters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.engines.base.engine import LlmOptions
from serving.engines.base.errors import LoadFailed
from serving.engines.base.registry import FORMATS, ModelFormat
from serving.modelserver.base.assignment import (
    Assignment,
    BadAssignment,
    ModelBounds,
    from_stored,
    parse_assignment,
    to_stored,
    update_assignment,
)
from serving.modelserver.base.errors import BadOptions
from serving.modelserver.base.llm import NO_LLM, AdapterSource, LlmParameters
from serving.modelserver.base.options import ServerOptions, parse_options
from serving.modelserver.execution.adapters import fetch_adapter
from serving.storage.base.artifact import Artifact
from serving.storage.base.digest import of_bytes, of_folder
from serving.storage.fetch import fetch
from tests.serving.modelserver.conftest import Serve
from tests.serving.modelserver.options_engine import LOADED, PRESENT_AT_CLOSE, content_of
from tests.support.models import double

DIGEST = of_bytes(b"lora")
PIRATE = AdapterSource("pirate", "hf://org/lora@v1", DIGEST)
FULL = LlmParameters(4096, True, (PIRATE, AdapterSource("b", "s3://box/b")), "hermes", {"seed": "-1", "x": "a=b"})
CALL = {
    "contextLength": 4096, "embeddings": True, "toolParser": "hermes", "engineArgs": {"seed": "-1", "x": "a=b"},
    "adapters": [{"name": "pirate", "uri": "hf://org/lora@v1", "digest": DIGEST}, {"name": "b", "uri": "s3://box/b"}],
}  # fmt: skip
DEFAULT = ModelBounds(4, 300.0, 1.0, default_slots=True)


def parse(*more: str) -> ServerOptions:
    return parse_options(["--name", "m", "--storage-uri", "file:///models/m", *more], {})


def llm_of(*more: str) -> LlmParameters:
    assignment = parse(*more).assignment
    assert assignment is not None
    return assignment.llm


def call(**parameters: object) -> Assignment:
    given = {"storageUri": "file:///models/m", "revision": "m-00001", **parameters}
    return parse_assignment("m", json.dumps({"parameters": given}).encode(), DEFAULT)


def test_the_command_line_has_every_option() -> None:
    assert llm_of() == NO_LLM
    assert llm_of(
        "--context-length", "4096", "--embeddings", "--adapter", f"pirate=hf://org/lora@v1#{DIGEST}",
        "--adapter", "b=s3://box/b", "--tool-parser", "hermes", "--engine-arg", "seed=-1", "--engine-arg", "x=a=b",
    ) == FULL  # fmt: skip


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--context-length", "-1"), "negative"),
        (("--context-length", "10000001"), "context length 10000001"),
        (("--adapter", "pirate"), "'pirate' has no URI: write NAME=URI"),
        (("--adapter", "pirate="), "has no URI"),
        (("--adapter", "Pirate=s3://box/a"), "'Pirate' is not a name"),
        (("--adapter", "a=s3://box/a#v1"), "'a' has a fragment that is not a digest"),
        (("--adapter", "a=s3://box/a#sha256:0"), "adapter 'a': "),
        (("--adapter", "a=s3://box/a", "--adapter", "a=s3://box/b"), "'a' is given 2 times"),
        (("--engine-arg", "seed"), "'seed' has no value: write NAME=VALUE"),
        (("--engine-arg", "a=1", "--engine-arg", "a=2"), "'a' is given twice"),
        (("--engine-arg", "Seed=1"), "'Seed' is not a name"),
    ],
)
def test_wrong_options_are_refused_with_the_remedy(more: tuple[str, ...], words: str) -> None:
    with pytest.raises(BadOptions, match=words):
        parse(*more)


@pytest.mark.parametrize("more", [("--context-length", "1"), ("--embeddings",), ("--adapter", "a=s3://b/c")])
def test_a_pool_member_and_a_folder_of_models_have_none(more: tuple[str, ...]) -> None:
    for server in (["--pool"], ["--models", "/models"]):
        with pytest.raises(BadOptions, match=f"{more[0]} cannot be used with {server[0]}"):
            parse_options([*server, *more], {})


def test_a_load_call_has_the_form_of_the_manifest_and_survives_a_restart() -> None:
    assert call().llm == NO_LLM
    assignment = call(llm=CALL)
    assert assignment.llm == FULL
    assert from_stored(to_stored(assignment), DEFAULT) == assignment


@pytest.mark.parametrize(
    "wrong",
    [{"contextLength": -1}, {"context": 1}, {"adapters": [{"name": "A", "uri": "s3://b/c"}]}, {"engineArgs": {"-": ""}},
     {"adapters": [{"name": "a", "uri": ""}]}, {"engineArgs": {"a": 1}}],
)  # fmt: skip
def test_a_wrong_load_call_is_refused(wrong: object) -> None:
    with pytest.raises(BadAssignment):
        call(llm=wrong)


def test_another_location_does_not_inherit_the_options() -> None:
    known = call(llm=CALL)
    assert update_assignment(known, b'{"parameters": {"slots": 2}}').llm == FULL
    assert update_assignment(known, b'{"parameters": {"storageUri": "file:///models/n"}}').llm == NO_LLM


@pytest.mark.parametrize(
    ("bounds", "slots", "engine_slots"),
    [
        (parse().bounds, 4, 0),
        (parse("--slots", "4").bounds, 4, 4),
        (call().bounds, 4, 0),
        (call(slots=0).bounds, 4, 0),
        (call(slots=8).bounds, 8, 8),
        (parse_assignment("m", b'{"parameters": {"storageUri": "file:///m", "revision": "m-1"}}',
                          parse("--slots", "2").bounds).bounds, 2, 2),
        (from_stored(to_stored(call()), DEFAULT).bounds, 4, 0),
        (from_stored(to_stored(call(slots=8)), DEFAULT).bounds, 8, 8),
    ],
)  # fmt: skip
def test_slots_that_nobody_set_are_left_to_the_engine(bounds: ModelBounds, slots: int, engine_slots: int) -> None:
    assert (bounds.slots, bounds.engine_slots) == (slots, engine_slots)


@pytest.fixture
def lora(tmp_path: Path) -> Path:
    """Return a folder with an adapter."""
    folder = tmp_path / "lora"
    folder.mkdir()
    (folder / "adapter.bin").write_bytes(b"lora")
    return folder


def source(path: Path, digest: str = "") -> AdapterSource:
    return AdapterSource("pirate", path.as_uri(), digest)


def fetch_file(uri: str, digest: str) -> Artifact:
    return fetch(uri, digest, Path("unused"), frozenset())


def test_an_adapter_is_a_folder_or_a_file_on_this_machine(lora: Path) -> None:
    file = lora / "adapter.bin"
    folder = fetch_adapter(source(lora), fetch_file).adapter
    assert (folder.name, Path(folder.path).resolve()) == ("pirate", lora.resolve())
    single = fetch_adapter(AdapterSource("file", file.as_uri(), DIGEST), fetch_file)
    with single.folder:
        path = Path(single.adapter.path)
        assert (path.name, content_of(path)) == ("adapter.bin", b"lora")
    assert not path.exists() and file.exists()


def test_a_folder_with_a_digest_is_used_in_place_once_it_is_verified(lora: Path) -> None:
    whole = of_folder({"adapter.bin": DIGEST})
    found = fetch_adapter(source(lora, whole), fetch_file)
    assert (Path(found.adapter.path).resolve(), found.digest) == (lora.resolve(), whole)

    def changed(uri: str, digest: str) -> Artifact:
        artifact = fetch_file(uri, digest)
        (lora / "adapter.bin").write_bytes(b"other")
        return artifact

    with pytest.raises(LoadFailed, match=r"adapter 'pirate' cannot be fetched.*was changed or damaged"):
        fetch_adapter(source(lora, whole), changed)


@pytest.mark.parametrize(("name", "digest"), [("lora", of_bytes(b"other")), ("missing", "")])
def test_an_adapter_that_cannot_be_fetched_is_named(lora: Path, name: str, digest: str) -> None:
    with pytest.raises(LoadFailed, match="adapter 'pirate' cannot be fetched: file://"):
        fetch_adapter(source(lora.with_name(name), digest), fetch_file)


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Provide a format of language models whose engine keeps its options."""
    name = "gguf"
    made = ModelFormat(name, "tests.serving.modelserver.options_engine", "numpy", "onnx", (".none",))
    monkeypatch.setitem(FORMATS, name, made)
    LOADED.clear()
    PRESENT_AT_CLOSE.clear()
    yield name


async def test_the_engine_gets_the_options_and_the_fetched_adapters(serve: Serve, keeping: str, lora: Path) -> None:
    running = await serve(
        b"weights", "--format", keeping, "--cpu", "2", "--context-length", "4096", "--embeddings",
        "--adapter", f"pirate={lora.as_uri()}", "--engine-arg", "seed=7", "--engine-arg", "dtype=f16",
    )  # fmt: skip

    [(options, contents)] = LOADED
    assert (options.threads, options.name, options.slots) == (2, "m", 0)
    assert options.memory >= 0
    assert options.llm == LlmOptions(4096, True, options.llm.adapters, "", (("dtype", "f16"), ("seed", "7")))
    assert contents == {"pirate": b"lora"}
    await running.server.close()
    assert PRESENT_AT_CLOSE == [True]


async def test_the_engine_gets_the_slots_that_were_set(serve: Serve, keeping: str) -> None:
    await serve(b"weights", "--format", keeping, "--slots", "3")
    [(options, _)] = LOADED
    assert (options.slots, options.llm) == (3, LlmOptions())


async def test_a_missing_adapter_fails_the_load(serve: Serve, keeping: str, tmp_path: Path) -> None:
    missing = (tmp_path / "missing").as_uri()
    with pytest.raises(LoadFailed, match=f"adapter 'pirate' cannot be fetched: {missing}: cannot be opened"):
        await serve(b"weights", "--format", keeping, "--adapter", f"pirate={missing}")
    assert LOADED == []


async def test_a_format_without_such_options_refuses_them(serve: Serve) -> None:
    with pytest.raises(LoadFailed, match="format onnx has no options of a language model"):
        await serve(double(), "--context-length", "16")
