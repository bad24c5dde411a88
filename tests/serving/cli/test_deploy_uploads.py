"""`knodel deploy PATH` for a cluster: the files are uploaded to the store of the settings, and that URI is deployed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import knodel
from clusters.base.objects import CONFIG_MAP, MODEL, NAMESPACE
from serving.client.artifacts import stored_name
from serving.client.errors import UsageError
from serving.client.models.local_files import name_for
from serving.client.transfer_meter import TransferMeter
from serving.storage.base.digest import of_bytes, of_folder
from serving.storage.upload.content import PART
from tests.serving.cli.conftest import Knodel, Served
from tests.serving.cli.test_kube_verbs import OverTls, tls
from tests.serving.storage.uploads.conftest import proxy_to
from tests.support.s3 import KEYS, fill, s3_server

pytest.importorskip("moto")

__all__ = ["tls"]
PAGE = Path(__file__).parents[3] / "docs" / "uploads.md"
MODEL_FILE = b"a model"
HEX = of_bytes(MODEL_FILE)[7:]
URI = f"s3://models/team/sha256/{HEX}/model.onnx"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Run a store with the bucket `models`."""
    with s3_server() as running:
        fill(running, "models", {})
        yield running


@pytest.fixture
async def cluster(tls: OverTls, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OverTls:
    """A cluster with empty settings, and the user's credentials, cache and files."""
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": endpoint, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "iris.onnx").write_bytes(MODEL_FILE)
    await tls.cluster.create(NAMESPACE, {"metadata": {"name": "knodel-system"}}, manager="test")
    await use(tls, {})
    return tls


async def use(cluster: Served, artifacts: dict[str, str]) -> None:
    """Install settings."""
    text = yaml.safe_dump({"artifacts": artifacts} if artifacts else {})
    metadata = {"name": "knodel-config", "namespace": "knodel-system"}
    await cluster.cluster.apply(
        CONFIG_MAP, {"metadata": metadata, "data": {"config.yaml": text}}, manager="test", force=True
    )


async def test_local_files_are_uploaded_and_deployed_by_their_digest(cluster: OverTls) -> None:
    await use(cluster, {"prefix": "s3://models/team", "secret": "store"})
    done = await cluster.knodel("deploy", "./iris.onnx", "--no-wait", "-o", "json")
    assert done.code == 0, done.err
    model = json.loads(done.out)
    assert model["metadata"]["name"] == "iris"
    assert (model["spec"]["storageUri"], model["spec"]["digest"]) == (URI, f"sha256:{HEX}")
    assert model["spec"]["storage"] == {"secretRef": {"name": "store"}}


async def test_the_python_package_uploads_the_same_way(cluster: OverTls) -> None:
    await use(cluster, {"prefix": "s3://models/team"})

    def deploy() -> None:
        with knodel.Client(kube_context="knodel", progress=False) as client:
            client.deploy("iris.onnx", "iris", wait=False)

    await asyncio.to_thread(deploy)
    model = await cluster.cluster.get(MODEL, "iris", "default")
    assert (model["spec"]["storageUri"], model["spec"]["digest"]) == (URI, f"sha256:{HEX}")


async def test_equal_bytes_make_no_new_version_and_options_have_precedence(cluster: OverTls, tmp_path: Path) -> None:
    await use(cluster, {"prefix": "s3://models/team", "secret": "store"})
    (tmp_path / "copy.onnx").write_bytes(MODEL_FILE)
    options = ("--no-wait", "--secret", "mine", "--digest", f"sha256:{HEX}")
    assert (await cluster.knodel("deploy", "iris", "--uri", "iris.onnx", *options)).code == 0
    done = await cluster.knodel("deploy", "iris", "--uri", "copy.onnx", *options)
    assert "unchanged" in done.out, done.err
    model = await cluster.cluster.get(MODEL, "iris", "default")
    assert model["spec"]["storage"]["secretRef"]["name"] == "mine"


async def test_a_dry_run_sends_nothing(cluster: OverTls, monkeypatch: pytest.MonkeyPatch) -> None:
    await use(cluster, {"prefix": "s3://models/dry"})
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    done = await cluster.knodel("deploy", "./iris.onnx", "--dry-run", "-o", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["spec"]["storageUri"] == f"s3://models/dry/sha256/{HEX}/model.onnx"


async def test_local_adapters_are_uploaded_as_well(cluster: OverTls, tmp_path: Path) -> None:
    await use(cluster, {"prefix": "s3://models/team", "secret": "store"})
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora" / "adapter.gguf").write_bytes(b"lora")
    adapters = ("--adapter", "legal=./lora", "--adapter", "tone=hf://o/tone@v")
    done = await cluster.knodel("deploy", "chat", "--uri", "hf://o/m@v", *adapters, "--no-wait", "-o", "json")
    assert done.code == 0, done.err
    spec = json.loads(done.out)["spec"]
    digest = of_folder({"adapter.gguf": of_bytes(b"lora")})
    uri = f"s3://models/team/sha256/{digest[7:]}/"
    assert spec["llm"]["adapters"] == [
        {"name": "legal", "uri": uri, "digest": digest}, {"name": "tone", "uri": "hf://o/tone@v"}
    ]  # fmt: skip
    assert (spec["storageUri"], spec["storage"]) == ("hf://o/m@v", {"secretRef": {"name": "store"}})


async def test_an_uploaded_adapter_leaves_the_secret_of_the_model(cluster: OverTls, tmp_path: Path) -> None:
    await use(cluster, {"prefix": "s3://models/team", "secret": "store"})
    deploy = ("deploy", "chat", "--no-wait", "-o", "json")
    assert (await cluster.knodel(*deploy, "--uri", "hf://o/m@v", "--secret", "mine", "--context-length", "8")).code == 0
    done = await cluster.knodel(*deploy, "--adapter", "legal=./iris.onnx")
    assert done.code == 0, done.err
    spec = json.loads(done.out)["spec"]
    assert spec["storage"] == {"secretRef": {"name": "mine"}}
    assert spec["llm"] == {"contextLength": 8, "adapters": [{"name": "legal", "uri": URI, "digest": f"sha256:{HEX}"}]}


async def test_after_ctrl_c_the_same_command_continues(cluster: OverTls, endpoint: str, tmp_path: Path) -> None:
    await use(cluster, {"prefix": "s3://models/team"})
    (tmp_path / "large.onnx").write_bytes(os.urandom(3 * PART))
    begun, stopped = threading.Event(), threading.Event()

    def hold(method: str, path: str, headers: dict[str, str]) -> None:
        if method == "PUT" and "partNumber=1&" not in path and not stopped.is_set():
            begun.set()
            stopped.wait(30)

    for proxy in proxy_to(endpoint):
        proxy.refuse = hold
        words = ["deploy", "./large.onnx", "--no-wait", "--kube-context", "knodel"]
        first = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "serving.cli.main", *words, cwd=tmp_path, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "AWS_ENDPOINT_URL": proxy.url, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        await asyncio.to_thread(begun.wait, 60)
        first.send_signal(signal.SIGINT)
        _, err = await first.communicate()
        stopped.set()
        assert first.returncode == 130 and b"the same command continues it" in err, err
    assert (await cluster.cluster.list(MODEL, "default")).items == []
    assert len(list((tmp_path / "cache" / "knodel" / "uploads").iterdir())) == 1
    done = await cluster.knodel("deploy", "./large.onnx", "--no-wait")
    assert done.code == 0, done.err
    assert list((tmp_path / "cache" / "knodel" / "uploads").iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "arguments", "code", "words"),
    [
        ({}, ("./iris.onnx",), 2, ["artifacts.prefix is not set", "`knodel config --kube-context knodel --set artifacts.prefix=s3://"]),
        ({"prefix": "s3://models"}, ("./missing.onnx",), 2, ["missing.onnx", "check that it exists"]),
        ({"prefix": "s3://models"}, ("./iris.onnx", "--digest", "sha256:" + "0" * 64), 2, [HEX, "was expected"]),
        ({"prefix": "s3://absent"}, ("./iris.onnx",), 1, ["404", "bucket absent exists"]),
        ({"prefix": "ftp://host"}, ("./iris.onnx",), 1, ["artifacts.prefix", "write s3://BUCKET/PREFIX"]),
        ({"prefix": "s3://models"}, ("./Iris_2.onnx",), 2, ["give NAME, and --uri ./Iris_2.onnx"]),
        ({"prefix": "s3://models"}, ("chat", "--adapter", "a=./lora"), 2, ["lora", "check that it exists"]),
        ({}, ("chat", "--adapter", "a=./iris.onnx"), 2, ["artifacts.prefix is not set"]),
    ],
)  # fmt: skip
async def test_what_cannot_be_deployed_has_its_remedy(
    cluster: OverTls, settings: dict[str, str], arguments: tuple[str, ...], code: int, words: list[str]
) -> None:
    await use(cluster, settings)
    done = await cluster.knodel("deploy", *arguments, "--no-wait")
    assert (done.code, done.out) == (code, ""), done.err
    assert all(word in done.err for word in words), done.err
    assert (await cluster.cluster.list(MODEL, "default")).items == []


async def test_config_sets_the_store(cluster: OverTls, monkeypatch: pytest.MonkeyPatch) -> None:
    done = await cluster.knodel(
        "config", "--set", "artifacts.prefix=s3://models/team", "--set", "gateway.port=9070", "-o", "json"
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["artifacts"]["prefix"] == "s3://models/team"
    assert (await cluster.knodel("deploy", "./iris.onnx", "--no-wait")).code == 0
    done = await cluster.knodel("config", "--set", "artifacts.prefix=", "-o", "json")
    assert (json.loads(done.out)["artifacts"]["prefix"], json.loads(done.out)["gateway"]["port"]) == ("", 9070)
    stored = await cluster.cluster.get(CONFIG_MAP, "knodel-config", "knodel-system")
    assert yaml.safe_load(stored["data"]["config.yaml"]) == {"gateway": {"port": 9070}}


@pytest.mark.parametrize(
    ("value", "word"),
    [("artifacts.prefix=models", "write s3://BUCKET"), ("artifacts", "write KEY=VALUE"), ("artifact.x=1", "unknown"),
     ("gateway.port=x", "whole number"), ("artifacts.secret=A_b", "artifacts.secret")],
)  # fmt: skip
async def test_config_refuses_other_settings(cluster: OverTls, value: str, word: str) -> None:
    done = await cluster.knodel("config", "--set", value)
    assert done.code == 2 and word in done.err


def test_config_sets_nothing_on_this_machine(knodel: Knodel) -> None:
    done = knodel("config", "--set", "artifacts.prefix=s3://models")
    assert done.code == 2 and "`knodel up --config FILE`" in done.err


@pytest.mark.parametrize(
    ("location", "name"),
    [("./iris.onnx", "iris"), ("models/iris", "iris"), ("iris.tar.gz", "iris"), ("s3://models/iris/", "iris"),
     ("https://host/iris.onnx?x=1", "iris")],
)  # fmt: skip
def test_a_location_names_the_model(location: str, name: str) -> None:
    assert name_for(location) == name


@pytest.mark.parametrize("location", ["./Iris.onnx", "./2.onnx", "/", "./iris.v2.onnx"])
def test_a_location_without_a_valid_name_is_refused(location: str) -> None:
    with pytest.raises(UsageError, match="give NAME, and --uri"):
        name_for(location)


@pytest.mark.parametrize(
    ("local", "stored"),
    [("iris-2.onnx", "model.onnx"), ("Model.JSON", "model.json"), ("weights.txt", "file.txt"), ("m", "model"),
     ("model.txt", "model.txt"), ("m.TAR.gz", "model.tar.gz"), ("saved_model.pb", "saved_model.pb")],
)  # fmt: skip
def test_stored_names_keep_what_determines_the_format(local: str, stored: str) -> None:
    assert stored_name(local) == stored


def test_the_meter_shows_bytes_rate_and_time_left() -> None:
    now = [0.0]
    meter = TransferMeter("iris.onnx", lambda: now[0])
    assert meter.text("uploading", 100 << 20, 400 << 20) == "uploading iris.onnx: 100 MiB of 400 MiB (25 %)"
    now[0] = 4.0
    shown = meter.text("uploading", 200 << 20, 400 << 20)
    assert shown == "uploading iris.onnx: 200 MiB of 400 MiB (50 %), 25 MiB/s, 8 s left"


async def test_the_page_works_as_it_is_written(cluster: OverTls) -> None:
    lines = re.findall(r"^\$ knodel (.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        done = await cluster.knodel(*shlex.split(line), *(["--no-wait"] if line.startswith("deploy") else []))
        assert done.code == 0, (line, done.err)
    model = await cluster.cluster.get(MODEL, "iris", "default")
    assert model["spec"]["storageUri"] == URI and model["spec"]["version"] == "2"
    assert model["spec"]["storage"] == {"secretRef": {"name": "store"}}
