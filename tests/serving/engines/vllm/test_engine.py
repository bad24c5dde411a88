"""The engine over a program that replays recordings of vLLM."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from serving.engines.base.engine import Adapter, EngineOptions, LlmOptions
from serving.engines.base.errors import InferenceFailed, InputRefused, LoadFailed, MissingEngine
from serving.engines.base.group import GroupOptions
from serving.engines.base.registry import find_format, find_loader
from serving.engines.upstream import client
from serving.engines.upstream.engine import COMPLETIONS, UpstreamEngine
from serving.engines.vllm.arguments import EngineArguments
from serving.engines.vllm.engine import load
from serving.engines.vllm.program import VllmProgram
from serving.storage.base.artifact import Artifact
from tests.serving.engines.upstream.test_engine import is_alive, text
from tests.serving.engines.vllm.test_folder import adapter
from tests.support import vllm_stub
from tests.support.small_llama import write
from tests.support.wait import eventually

Start = Callable[..., UpstreamEngine]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Load the small Llama with these options of a language model."""
    vllm_stub.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    artifact = Artifact(write(tmp_path.resolve() / "model"), None, uri="the model")
    started = []

    def begin(slots: int = 0, **llm: object) -> UpstreamEngine:
        options = EngineOptions(name="m", slots=slots, llm=LlmOptions(**llm))  # type: ignore[arg-type]
        started.append(load(artifact, options))
        return started[-1]

    yield begin
    for engine in started:
        engine.close()


def program(options: EngineOptions, arguments: EngineArguments | None = None, rank: int = 0) -> VllmProgram:
    return VllmProgram("/bin/vllm", Path("/model"), options, arguments or EngineArguments(), rank, None)


def test_the_command_names_the_folder_the_socket_and_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/kept")
    command = program(EngineOptions(name="m")).command(Path("/run/x/engine.sock"), "secret")
    assert command.argv[1:5] == ["-P", "-m", "serving.engines.upstream.guard", "/bin/vllm"]
    assert command.argv[5:] == [
        "serve", "/model", "--uds", "/run/x/engine.sock", "--served-model-name", "m", "--disable-fastapi-docs",
        "--disable-uvicorn-access-log", "--load-format=safetensors", "--max-num-seqs=256", "--max-model-len=auto",
    ]  # fmt: skip
    assert "secret" not in " ".join(command.argv)
    assert command.environ["VLLM_API_KEY"] == "secret"
    assert command.environ["HF_HUB_OFFLINE"] == command.environ["VLLM_NO_USAGE_STATS"] == "1"
    assert command.environ["VLLM_SERVER_DEV_MODE"] == command.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "0"
    assert command.environ["TRITON_CACHE_DIR"] == "/run/x/cache"
    assert "VLLM_CACHE_ROOT" not in command.environ  # the user's own


def test_the_options_of_the_model_are_in_the_command() -> None:
    llm = LlmOptions(4096, adapters=(Adapter("a", "/a"), Adapter("b", "/b,c=d")), tool_parser="hermes")
    made = program(EngineOptions(name="m", slots=3, llm=llm), EngineArguments(["--dtype=half"], 60.0), 9)
    argv = list(made.command(Path("/x/engine.sock"), "k").argv)
    assert {"--max-num-seqs=3", "--max-model-len=4096", "--enable-sleep-mode", "--dtype=half"} <= set(argv)
    assert argv[argv.index("--enable-auto-tool-choice") + 1] == "--tool-call-parser=hermes"
    lora = argv.index("--enable-lora")
    assert argv[lora + 1 : lora + 4] == ["--max-lora-rank=16", "--max-loras=2", "--max-cpu-loras=2"]
    modules = ["--lora-modules", '{"name": "m:a", "path": "/a"}', '{"name": "m:b", "path": "/b,c=d"}']
    assert argv[lora + 4 : lora + 7] == modules
    assert made.command(Path("/x/engine.sock"), "k").environ["VLLM_SERVER_DEV_MODE"] == "1"
    assert made.adapters == ("a", "b")


@pytest.mark.parametrize(
    ("arguments", "rank", "room"),
    [
        (EngineArguments(), 0, ["--max-lora-rank=16", "--max-loras=4"]),
        (EngineArguments(), 40, ["--max-lora-rank=64", "--max-loras=4"]),
        (EngineArguments(lora_rank=32, loras=2), 40, ["--max-lora-rank=32", "--max-loras=2"]),
    ],
)
def test_an_engine_that_loads_adapters_later_has_room_for_them(
    arguments: EngineArguments, rank: int, room: list[str]
) -> None:
    made = program(EngineOptions(name="m", llm=LlmOptions(dynamic=True)), arguments, rank)
    command = made.command(Path("/x/engine.sock"), "k")
    argv = list(command.argv)
    lora = argv.index("--enable-lora")
    assert argv[lora + 1 : lora + 4] == [*room, "--max-cpu-loras=64"]
    assert "--lora-modules" not in argv
    assert command.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    assert made.adapters == ()


def test_a_leader_and_its_workers_name_their_places() -> None:
    group = GroupOptions(workers=2, leader="10.0.0.7", token="t")
    llm = LlmOptions(adapters=(Adapter("a", "/a"),))
    leader = program(EngineOptions(name="m", llm=llm, group=group), rank=8).command(Path("/x/engine.sock"), "k").argv
    made = program(EngineOptions(name="m", llm=llm, group=group._replace(rank=2)), rank=8)
    worker = made.worker_command().argv
    assert leader[-3:] == ["--nnodes=3", "--node-rank=0", "--master-addr=10.0.0.7"]
    assert worker[-3:] == ["--nnodes=3", "--node-rank=2", "--master-addr=10.0.0.7"]
    assert worker[5:8] == ["serve", "/model", "--headless"]
    assert {"--enable-lora", "--load-format=safetensors"} <= set(worker)
    assert not {"--uds", "--served-model-name", "--lora-modules"} & set(worker)


def test_on_one_machine_there_is_one_process() -> None:
    group = GroupOptions(workers=2, one_machine=True)
    assert "--nnodes" not in " ".join(program(EngineOptions(name="m", group=group)).command(Path("/x/s"), "k").argv)


def test_only_options_that_vllm_has_are_in_the_command() -> None:
    known = (vllm_stub.RECORDINGS / "options.json").read_text()
    llm = LlmOptions(4096, adapters=(Adapter("a", "/a"),), tool_parser="hermes")
    group = GroupOptions(workers=2, leader="10.0.0.7", token="t")
    made = program(EngineOptions(name="m", llm=llm, group=group), EngineArguments((), 60.0), 1)
    argv = [*made.command(Path("/x/s"), "k").argv, *made.worker_command().argv]
    names = {word.partition("=")[0] for word in argv if word.startswith("--")}
    assert len(names) > 10
    assert all(f'"{name[2:]}":' in known for name in names)


def test_the_format_is_found_by_config_and_safetensors() -> None:
    assert find_format("", ["config.json", "model.safetensors", "tokenizer.json"]).name == "vllm"
    assert find_format("", ["config.json", "model.safetensors", "model.onnx"]).name == "onnx"
    assert find_loader(find_format("vllm", [])) is load


def test_without_vllm_the_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    artifact = Artifact(write(tmp_path.resolve() / "model"), None, uri="the model")
    with pytest.raises(MissingEngine, match=r"needs the program vllm.* set runtimes\.vllm\.image in its settings"):
        load(artifact, EngineOptions(name="m"))


def test_a_completion_and_a_stream(start: Start) -> None:
    engine = start()
    assert engine.slots == 256
    assert engine.signature.platform == "huggingface_vllm"
    [output] = engine.infer(text("hi"), ["text_output"])
    assert len(output[0]) == 3
    parts = [part[0][0] for part in engine.stream(text("hi"), ["text_output"])]
    assert "".join(parts) == output[0]


def test_the_wanted_slots_are_taken(start: Start) -> None:
    assert start(slots=7).slots == 7


def test_a_failed_request_is_the_engines_or_the_callers_fault(start: Start) -> None:
    engine = start()
    engine._name = "other"  # the program does not serve it
    with pytest.raises(InputRefused, match=r"404.*does not exist"):
        engine.infer(text("hi"), ["text_output"])


def test_adapters_are_served_by_their_names(start: Start, tmp_path: Path) -> None:
    engine = start(adapters=(adapter(tmp_path / "legal"),))
    address = engine.state.address
    assert address is not None
    for model, status in (("m:legal", 200), ("m:other", 404)):
        body = f'{{"model": "{model}", "prompt": "hi"}}'.encode()
        assert client.request(address, "POST", COMPLETIONS, body).status == status


def completion_of(engine: UpstreamEngine, model: str) -> int:
    """Return the status of a completion of a model."""
    address = engine.state.address
    assert address is not None
    return client.request(address, "POST", COMPLETIONS, json.dumps({"model": model, "prompt": "hi"}).encode()).status


def test_an_adapter_is_loaded_and_unloaded_while_the_engine_serves(start: Start, tmp_path: Path) -> None:
    engine = start(dynamic=True)
    assert completion_of(engine, "m:legal") == 404
    engine.load_adapter(adapter(tmp_path / "legal"), "m:legal")
    assert completion_of(engine, "m:legal") == 200
    engine.unload_adapter("m:legal")
    assert completion_of(engine, "m:legal") == 404
    with pytest.raises(InferenceFailed, match=r"does not unload the adapter m:legal: .* cannot be found"):
        engine.unload_adapter("m:legal")


@pytest.mark.parametrize(
    ("room", "remedy"),
    [
        ((), "started for ranks up to 16: `knodel restart m`, or set max-lora-rank of engineArgs"),
        ((("max-lora-rank", "8"),), "started for ranks up to 8: set max-lora-rank of engineArgs"),
    ],
)
def test_a_rank_beyond_the_room_is_refused(
    start: Start, tmp_path: Path, room: tuple[tuple[str, str], ...], remedy: str
) -> None:
    engine = start(dynamic=True, engine_args=room)
    with pytest.raises(LoadFailed, match=f"its rank is 17, and this replica was {remedy}"):
        engine.load_adapter(adapter(tmp_path / "large", r=17), "m:large")


def test_an_adapter_that_vllm_cannot_load_is_refused_with_its_words(start: Start, tmp_path: Path) -> None:
    engine, made = start(dynamic=True), adapter(tmp_path / "legal")
    (tmp_path / "legal" / "broken").touch()
    with pytest.raises(LoadFailed, match="vLLM refuses the adapter: Call to add_lora method failed: size mismatch"):
        engine.load_adapter(made, "m:legal")
    assert completion_of(engine, "m") == 200


async def test_a_sleeping_engine_is_woken_for_an_adapter(start: Start, tmp_path: Path) -> None:
    engine = start(dynamic=True, engine_args=(("sleep-idle-seconds", "0.01"),))
    await eventually(lambda: engine.state.load.sleeping)
    engine.load_adapter(adapter(tmp_path / "legal"), "m:legal")
    assert completion_of(engine, "m:legal") == 200


def test_a_bad_adapter_does_not_keep_an_engine_from_starting(start: Start, tmp_path: Path) -> None:
    good, bad = adapter(tmp_path / "good", r=40), adapter(tmp_path / "bad", peft_type="IA3")
    engine = start(dynamic=True, adapters=(bad, good))
    engine.load_adapter(good, "m:good")
    with pytest.raises(LoadFailed, match="is not a LoRA adapter"):
        engine.load_adapter(bad, "m:bad")


def test_embeddings_are_refused(start: Start) -> None:
    with pytest.raises(LoadFailed, match="omit embeddings"):
        start(embeddings=True)


def test_a_start_that_fails_quotes_vllm(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "no GPU was found")
    with pytest.raises(LoadFailed, match="with exit code 1: no GPU was found"):
        start()


async def test_an_idle_engine_sleeps_and_is_woken_before_a_request(start: Start) -> None:
    engine = start(engine_args=(("sleep-idle-seconds", "0.01"),))
    await eventually(lambda: engine.state.load.sleeping)
    assert engine.enter() is None
    assert engine.infer(text("hi"), ["text_output"])[0].size == 1


async def test_an_engine_with_a_request_does_not_sleep(start: Start) -> None:
    engine = start(engine_args=(("sleep-idle-seconds", "0.01"),))
    await eventually(lambda: engine.state.load.sleeping)
    engine.wake()
    while (address := engine.enter()) is None:
        engine.wake()
    state = engine.state
    await eventually(lambda: engine.state is not state)  # it was looked at
    state = engine.state
    await eventually(lambda: engine.state is not state)
    assert client.request(address, "POST", COMPLETIONS, b'{"model": "m", "prompt": "hi"}', timeout=5).status == 200
    engine.leave()
    await eventually(lambda: engine.state.load.sleeping)


async def test_the_death_of_the_core_ends_the_replica(start: Start) -> None:
    engine = start()
    body = b'{"model": "m", "prompt": "hi", "stream": true, "user": "{\\"replay\\": \\"death-chat-stream\\"}"}'
    address = engine.state.address
    assert address is not None
    events = list(client.stream(address, COMPLETIONS, body))
    assert b"EngineCore encountered an issue" in events[-2]
    await eventually(lambda: engine.state.lost)
    with pytest.raises(InferenceFailed, match="needs a restart"):
        engine.infer(text("hi"), ["text_output"])


@pytest.mark.parametrize("victim", ["guard", "vllm", "close"])
async def test_no_process_is_left(start: Start, victim: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        engine = start()
    guard = engine.pid
    assert guard is not None
    found = re.search(r"core pid=(\d+)", caplog.text)
    assert found is not None
    core = int(found[1])
    vllm = int(Path(f"/proc/{core}/stat").read_text().rpartition(") ")[2].split()[1])
    assert len({guard, vllm, core}) == 3
    if victim == "close":
        engine.close()
    else:
        os.kill(guard if victim == "guard" else vllm, signal.SIGKILL)
        await eventually(lambda: engine.state.lost)
    await eventually(lambda: not any(map(is_alive, (guard, vllm, core))))


def test_the_tensors_of_a_request(start: Start) -> None:
    [output] = start().infer({**text("hi"), "max_tokens": np.array([3])}, ["text_output"])
    assert output.shape == (1,)
