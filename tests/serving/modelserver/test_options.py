"""Valid and invalid options of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.modelserver import preload
from serving.modelserver.base.assignment import BatchBounds
from serving.modelserver.base.errors import BadOptions
from serving.modelserver.base.options import ServerOptions, parse_options

ARGS = ("--name", "m", "--storage-uri", "file:///models/m.onnx")


def parse(*more: str, **environ: str) -> ServerOptions:
    return parse_options([*ARGS, *more], environ)


def test_the_defaults_are_loopback_and_the_ports_of_the_contract() -> None:
    options = parse()
    assert (options.host, options.port, options.management_port) == ("127.0.0.1", 8080, 9095)
    assert (options.bounds.slots, options.bounds.timeout, options.bounds.threads) == (4, 300.0, 1)
    assert options.assignment is not None and options.assignment.revision == "m-00001"


def test_the_environment_gives_address_revision_and_storage() -> None:
    options = parse(PORT="1", MANAGEMENT_PORT="0", HOST="::1", K_REVISION="m-00003", KNODEL_CACHE="/c",
                    KNODEL_ALLOW_HOSTS="a.internal, 127.0.0.1")  # fmt: skip
    assert (options.host, options.port, options.management_port) == ("::1", 1, 0)
    assert options.assignment is not None and options.assignment.revision == "m-00003"
    assert options.cache == Path("/c")
    assert options.allow_hosts == frozenset({"a.internal", "127.0.0.1"})


@pytest.mark.parametrize(
    "more",
    [("--name", "M"), ("--name", "x" * 64), ("--slots", "0"), ("--slots", "x"), ("--queue", "-1"), ("--timeout", "0"),
     ("--timeout", "nan"), ("--cpu", "inf"), ("--unknown",), ("--slo", "4"), ("--max-batch-size", "0"),
     ("--max-batch-latency", "0.1"), ("--max-batch-latency", "-1"), ("--models", "/models"), ("--memory-limit", "1Gi"),
     ("--load-timeout", "60"), ("--load-timeout", "0")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_on_one_line(more: tuple[str, ...]) -> None:
    with pytest.raises(BadOptions) as error:
        parse(*more)
    assert "\n" not in str(error.value) and more[0][:6] in str(error.value)


@pytest.mark.parametrize(
    ("more", "word"),
    [(("--memory-limit", "much"), "quantity"), (("--memory-limit", "0"), "less than 1"),
     (("--memory-limit", "500m"), "less than 1"), (("--pool",), "--pool"), (("--name", "m"), "--name")],
)  # fmt: skip
def test_a_folder_of_models_is_bounded_by_a_quantity_and_has_no_other_model(more: tuple[str, ...], word: str) -> None:
    with pytest.raises(BadOptions, match=word):
        parse_options(["--models", "/models", *more], {})


def test_many_models_share_a_limit_and_a_token() -> None:
    options = parse_options(["--models", "/models", "--memory-limit", "1.5Gi"], {"KNODEL_LOAD_TOKEN_SHA256": "AB"})
    assert (options.assignment, options.pool, options.models) == (None, None, Path("/models"))
    assert (options.memory_limit, options.token_sha256, options.load_timeout) == (3 << 29, "ab", 600.0)
    assert parse_options(["--models", "/models", "--load-timeout", "1.5"], {}).load_timeout == 1.5


def test_batches_are_off_unless_they_have_a_size() -> None:
    assert parse().bounds.batching is None
    assert parse("--max-batch-size", "1").bounds.batching is None
    assert parse("--max-batch-size", "8").bounds.batching == BatchBounds(8)
    assert parse("--max-batch-size", "8", "--max-batch-latency", "0").bounds.batching == BatchBounds(8, 0.0)


@pytest.mark.parametrize(
    "environ", [{"PORT": "-1"}, {"PORT": "65536"}, {"MANAGEMENT_PORT": "x"}, {"K_REVISION": "a\r\nb"}]
)
def test_an_environment_that_makes_no_sense_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(BadOptions):
        parse(**environ)


@pytest.mark.parametrize(("cpu", "threads"), [("0.25", 1), ("1", 1), ("2.5", 2), ("4", 4)])
def test_one_inference_uses_the_cores_that_it_has(cpu: str, threads: int) -> None:
    assert parse("--cpu", cpu).bounds.threads == threads


def test_a_zygote_is_told_the_engine_by_format_by_name_or_by_the_files(tmp_path: Path) -> None:
    engine = "serving.engines.onnx.engine"
    (tmp_path / "model.onnx").touch()
    assert preload(ARGS)[-1] == engine
    assert preload(["--storage-uri=file:///models/m", "--format=onnx"])[-1] == engine
    assert preload(["--storage-uri", tmp_path.as_uri()])[-1] == engine
    assert engine not in preload(["--storage-uri", "file:///nowhere"])
    (tmp_path / "MLmodel").touch()
    assert preload(["--storage-uri", tmp_path.as_uri()])[-2:] == ("serving.engines.mlflow.engine", engine)
    assert preload([]) == ("serving.modelserver.main", "serving.modelserver.run")


def test_a_pool_member_needs_no_model_and_knows_the_hash_of_its_token(tmp_path: Path) -> None:
    options = parse_options(
        ["--pool", "--slots", "3", "--cpu", "2"],
        {"KNODEL_LOAD_TOKEN_SHA256": "AB", "K_REVISION": "pool", "TMPDIR": str(tmp_path)},
    )
    assert options.assignment is None and options.pool is not None
    assert (options.pool.format, options.token_sha256) == ("onnx", "ab")
    assert (options.bounds.slots, options.bounds.threads, options.scratch) == (3, 2, tmp_path)


@pytest.mark.parametrize("more", [("--name", "m"), ("--storage-uri", "file:///m"), ("--digest", "sha256:0")])
def test_a_pool_member_with_a_model_is_refused(more: tuple[str, str]) -> None:
    with pytest.raises(BadOptions, match=more[0]):
        parse_options(["--pool", *more], {})


def test_a_zygote_of_pool_members_has_all_that_a_claim_needs() -> None:
    for argv in (["--pool"], ["--pool", "--format", "onnx"], ["--pool", "--format=onnx"]):
        modules = preload(argv)
        assert modules[:2] == ("serving.modelserver.main", "serving.modelserver.run")
        assert {"serving.engines.onnx.engine", "serving.storage.transfer.downloader"} <= set(modules)
    assert "serving.engines.onnx.engine" not in preload(["--pool", "--format", "tarot"])
