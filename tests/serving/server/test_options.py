"""What a server can be started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.server import preload
from serving.server.errors import BadOptions
from serving.server.options import ServerOptions, parse_options

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
     ("--timeout", "nan"), ("--cpu", "inf"), ("--unknown",), ("--slo", "4")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_on_one_line(more: tuple[str, ...]) -> None:
    with pytest.raises(BadOptions) as error:
        parse(*more)
    assert "\n" not in str(error.value) and more[0][:6] in str(error.value)


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
    engine = "serving.engines.onnx"
    (tmp_path / "model.onnx").touch()
    assert preload(ARGS)[-1] == engine
    assert preload(["--storage-uri=file:///models/m", "--format=onnx"])[-1] == engine
    assert preload(["--storage-uri", tmp_path.as_uri()])[-1] == engine
    assert engine not in preload(["--storage-uri", "file:///nowhere"])
    assert preload([]) == ("serving.server.main", "serving.server.run")


def test_a_pool_member_needs_no_model_and_knows_the_hash_of_its_token(tmp_path: Path) -> None:
    options = parse_options(
        ["--pool", "--slots", "3", "--cpu", "2"],
        {"KNODEL_LOAD_TOKEN_SHA256": "AB", "K_REVISION": "pool", "TMPDIR": str(tmp_path)},
    )
    assert options.assignment is None and options.pool is not None
    assert (options.pool.format, options.pool.token_sha256) == ("onnx", "ab")
    assert (options.bounds.slots, options.bounds.threads, options.scratch) == (3, 2, tmp_path)


@pytest.mark.parametrize("more", [("--name", "m"), ("--storage-uri", "file:///m"), ("--digest", "sha256:0")])
def test_a_pool_member_with_a_model_is_refused(more: tuple[str, str]) -> None:
    with pytest.raises(BadOptions, match=more[0]):
        parse_options(["--pool", *more], {})


def test_a_zygote_of_pool_members_has_all_that_a_claim_needs() -> None:
    for argv in (["--pool"], ["--pool", "--format", "onnx"], ["--pool", "--format=onnx"]):
        modules = preload(argv)
        assert modules[:2] == ("serving.server.main", "serving.server.run")
        assert {"serving.engines.onnx", "serving.storage.http"} <= set(modules)
    assert "serving.engines.onnx" not in preload(["--pool", "--format", "tarot"])
