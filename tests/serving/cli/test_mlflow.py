"""`models:/` and `runs:/` of MLflow's registry in `deploy` and `serve`: the very version, or a clear refusal."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clusters.base.errors import KnodelError
from serving.cli.mlflow import resolve_reference
from serving.client.errors import ClientError, UsageError
from serving.client.mlflow.references import Reference, is_reference, read_reference
from serving.control_api.tls import ensure_certificate
from tests.serving.cli.conftest import Served, check
from tests.support import mlflow_folders
from tests.support.mlflow_server import ARTIFACTS, MODEL_ID, RUN, Registry, tracking_server

STORE = "s3://models/mlflow/1/models/m-7f3c2a/artifacts"
PROXIED = f"mlflow-artifacts:/1/models/{MODEL_ID}/artifacts"
UNSET = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD",
         "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_INSECURE_TLS", "MLFLOW_TRACKING_SERVER_CERT_PATH")  # fmt: skip


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A tracking server with two versions of `churn`, whose address is in the environment."""
    made = Registry(
        tmp_path / "proxied",
        versions={"churn": {"6": "s3://models/churn/6", "7": STORE}},
        aliases={("churn", "champion"): "7"},
        runs={RUN: f"s3://models/mlflow/1/{RUN}/artifacts"},
    )
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with tracking_server(made) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        yield made


def refused(uri: str) -> str:
    with pytest.raises(KnodelError) as caught:
        resolve_reference(uri)
    return str(caught.value)


@pytest.mark.parametrize(
    ("uri", "kind", "name", "part"),
    [
        ("models:/churn/7", "version", "churn", "7"), ("models:/churn@champion", "alias", "churn", "champion"),
        ("models:/churn/latest", "latest", "churn", ""), ("models:/churn/Production", "stage", "churn", "Production"),
        ("models:/m-7f3c2a", "logged", "m-7f3c2a", ""), ("models:/a b@c", "alias", "a b", "c"),
        ("runs:/0a1b/model", "run", "0a1b", "model"), ("runs:/0a1b", "run", "0a1b", ""),
        ("MODELS:/churn/7", "version", "churn", "7"), ("mlflow-artifacts:/1/ab", "artifacts", "1/ab", ""),
        ("mlflow-artifacts://host:80/1/ab", "artifacts", "1/ab", "host:80"),
    ],
)  # fmt: skip
def test_references_are_read_as_mlflow_reads_them(uri: str, kind: str, name: str, part: str) -> None:
    assert is_reference(uri)
    assert read_reference(uri) == Reference(uri, kind, name, part)


@pytest.mark.parametrize(
    "uri",
    [
        "models:/",
        "models:/a/b/c",
        "models:/@x",
        "models:/a@",
        "models:/../1",
        "runs:/",
        "models:/a\n/1",
        "models:/a?b/1",
    ],
)
def test_malformed_references_are_refused(uri: str) -> None:
    with pytest.raises(UsageError, match="is not a URI of MLflow: write models:/NAME/VERSION, models:/NAME@ALIAS"):
        read_reference(uri)


@pytest.mark.parametrize(
    ("uri", "location", "version"),
    [
        ("models:/churn/6", "s3://models/churn/6", "6"),
        ("models:/churn@champion", STORE, "7"),
        ("models:/churn/latest", STORE, "7"),
        (f"runs:/{RUN}/model/data", f"s3://models/mlflow/1/{RUN}/artifacts/model/data", RUN),
    ],
)
def test_a_reference_becomes_the_address_of_one_version(
    registry: Registry, uri: str, location: str, version: str
) -> None:
    found = resolve_reference(uri)
    assert (found.location, found.version) == (location, version)


def test_models_that_mlflow_3_logs_are_found_by_id_and_by_run(registry: Registry) -> None:
    registry.logged[MODEL_ID] = STORE
    assert resolve_reference(f"models:/{MODEL_ID}").location == STORE
    assert resolve_reference(f"runs:/{RUN}/model").location == STORE
    registry.versions["churn"]["8"] = f"models:/{MODEL_ID}"  # a source that leads on
    found = resolve_reference("models:/churn/8")
    assert (found.location, found.version) == (STORE, "8")


def test_proxied_artifacts_are_downloaded(registry: Registry, tmp_path: Path) -> None:
    registry.versions["churn"]["8"] = PROXIED
    mlflow_folders.write(registry.root / "1" / "models" / MODEL_ID / "artifacts")
    left = tmp_path / "cache" / "knodel" / "mlflow" / "download-x"  # by a process that was killed
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    (registry.root / "1" / "models" / MODEL_ID / "artifacts" / "code").mkdir()
    (registry.root / "1" / "models" / MODEL_ID / "artifacts" / "code" / "a b.py").write_text("x = 1")
    for _ in range(2):  # the second is the same
        found = resolve_reference("models:/churn/8")
        folder = Path(found.location)
        assert found.version == "8" and folder.is_relative_to(tmp_path / "cache")
        assert {str(one.relative_to(folder)) for one in folder.rglob("*.*")} == {"model.skops", "code/a b.py"}
        assert (folder / "MLmodel").read_bytes().startswith(b"flavors")
        assert [one.name for one in folder.parent.iterdir()] == ["artifacts"]
        assert list(folder.parent.parent.iterdir()) == [folder.parent]
    (registry.root / "1" / "models" / MODEL_ID / "artifacts" / "code" / "a b.py").write_text("x = 2")
    assert resolve_reference("models:/churn/8").location != str(folder)
    assert (folder / "code" / "a b.py").read_text() == "x = 1"  # a deploy of the first may still read it
    registry.versions["churn"]["8"] = PROXIED.replace(MODEL_ID, "gone")
    assert "has no files: check the address" in refused("models:/churn/8")


def test_artifacts_are_downloaded_with_the_certificate_of_the_tracking_server(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.versions["churn"]["8"] = PROXIED
    mlflow_folders.write(registry.root / "1" / "models" / MODEL_ID / "artifacts")
    authority, certificate, key = ensure_certificate(tmp_path / "tls", datetime.now(UTC))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with tracking_server(registry, tls) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        assert "set MLFLOW_TRACKING_SERVER_CERT_PATH" in refused("models:/churn/8")
        monkeypatch.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(authority))
        assert (Path(resolve_reference("models:/churn/8").location) / "MLmodel").is_file()


def test_downloads_at_once_do_not_disturb_each_other(registry: Registry) -> None:
    registry.versions["churn"]["8"] = PROXIED
    mlflow_folders.write(registry.root / "1" / "models" / MODEL_ID / "artifacts")
    with ThreadPoolExecutor(6) as pool:
        found = {one.location for one in pool.map(resolve_reference, ["models:/churn/8"] * 12)}
    assert len(found) == 1


@pytest.mark.parametrize("said", [{"model_versions": 1}, {"models": None}, {"models": [{"info": None}]}])
def test_answers_of_another_form_are_no_crash(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, said: dict[str, object]
) -> None:
    whole = registry.answer
    monkeypatch.setattr(registry, "answer", lambda *asked: {**whole(*asked), **said})
    if "model_versions" in said:
        assert "has no version" in refused("models:/churn/latest")
    else:
        assert resolve_reference(f"runs:/{RUN}/model").location == f"s3://models/mlflow/1/{RUN}/artifacts/model"


def test_names_of_files_cannot_lead_out_of_the_folder(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.versions["churn"]["8"] = PROXIED
    for name in ("../x", "..", "/etc/passwd", "", None, "a/b"):
        listing = {"files": [{"path": name, "is_dir": False, "file_size": 1}]}
        whole = registry.answer
        monkeypatch.setattr(
            registry,
            "answer",
            lambda path, query, said=listing, whole=whole: said if path == ARTIFACTS else whole(path, query),
        )
        assert "lists a file without a name: refused" in refused("models:/churn/8")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("models:/churn/9", "models:/churn/9 does not exist (Model Version (name=churn, version=9) not found)"),
        ("models:/other/1", "models:/other/1 does not exist"),
        ("models:/other/latest", "Registered Model with name=other not found"),
        ("models:/churn@gone", "the registered model 'churn' has no alias 'gone', or does not exist"),
        ("models:/churn/Production", "has no version in Production"),
        ("models:/m-0", "models:/m-0 does not exist: write models:/NAME/VERSION or models:/NAME@ALIAS"),
        ("runs:/0/model", "the tracking server has no run '0'"),
        ("mlflow-artifacts://elsewhere/1", "is on another server than MLFLOW_TRACKING_URI"),
    ],
)
def test_what_the_server_does_not_have_is_named(registry: Registry, uri: str, message: str) -> None:
    assert message in refused(uri)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("dbfs:/models/churn", "the store dbfs: is not supported: `mlflow artifacts download"),
        ("/srv/mlruns/1/artifacts", "a folder of the tracking server's own machine: start it with --serve-artifacts"),
        ("https://other.test/files/churn", "is not a folder of the tracking server"),
        ("models:/churn/8", "leads from one address to another without end"),
    ],
)
def test_stores_that_cannot_be_read_are_refused_with_the_remedy(registry: Registry, address: str, message: str) -> None:
    registry.versions["churn"]["8"] = address
    assert message in refused("models:/churn/8")


def test_a_version_that_is_not_ready_is_refused(registry: Registry) -> None:
    registry.status = "PENDING_REGISTRATION"
    assert "models:/churn/7 is not ready: its status is PENDING_REGISTRATION" in refused("models:/churn/7")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "models:/churn/7 needs a tracking server of MLflow: set MLFLOW_TRACKING_URI=http://HOST:PORT"),
        ("sqlite:///mlflow.db", "MLFLOW_TRACKING_URI=sqlite:///mlflow.db is not the address of a tracking server"),
        ("databricks", "is not the address of a tracking server"),
        ("http://u:secret@h:x", "is not the address of a tracking server"),
        ("http://127.0.0.1:1", "does not respond (", ),
    ],
)  # fmt: skip
def test_a_tracking_uri_that_cannot_be_used_is_named(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, value: str, message: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", value)
    said = refused("models:/churn/7")
    assert message in said and "secret" not in said


def test_credentials_are_mlflows(registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    registry.login = f"Basic {base64.b64encode(b'ada:pw').decode()}"
    assert "denies access (401): set MLFLOW_TRACKING_USERNAME" in refused("models:/churn/7")
    (tmp_path / ".mlflow").mkdir()
    (tmp_path / ".mlflow" / "credentials").write_text(
        "[mlflow]\nmlflow_tracking_username = ada\nmlflow_tracking_password = pw\n"
    )
    assert resolve_reference("models:/churn/7").version == "7"
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "bob")
    assert "denies access" in refused("models:/churn/7")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ada")
    assert resolve_reference("models:/churn/7").version == "7"
    (tmp_path / ".mlflow" / "credentials").unlink()
    registry.login = "Bearer t0ken"
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken")
    assert resolve_reference("models:/churn/7").version == "7"


def test_the_registry_may_have_an_address_of_its_own(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", "http://127.0.0.1:1")
    assert "check MLFLOW_TRACKING_URI" in refused("models:/churn/7") or "does not respond" in refused("models:/churn/7")
    assert resolve_reference(f"runs:/{RUN}/model").version == RUN


def test_another_server_is_not_taken_for_mlflow(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "answer", lambda *_: ["x"])
    with pytest.raises(ClientError, match="does not answer as MLflow: check MLFLOW_TRACKING_URI"):
        resolve_reference("models:/churn/7")


async def test_deploy_pins_the_version_that_the_alias_means_now(registry: Registry, served: Served) -> None:
    done = await served.knodel("deploy", "churn", "--uri", "models:/churn@champion", "--no-wait")
    assert done.code == 0, done.err
    assert f"models:/churn@champion is version 7: {STORE}" in done.err
    assert (await served.model("churn"))["spec"] == {"storageUri": STORE, "version": "7"}
    registry.aliases["churn", "champion"] = "6"
    assert (await served.model("churn"))["spec"]["version"] == "7"
    done = await served.knodel("deploy", "models:/churn@champion", "--version", "six", "--no-wait")
    assert done.code == 0, done.err
    assert (await served.model("churn"))["spec"] == {"storageUri": "s3://models/churn/6", "version": "six"}


async def test_proxied_artifacts_are_kept_by_their_digest(registry: Registry, served: Served) -> None:
    registry.versions["churn"]["8"] = PROXIED
    mlflow_folders.write(registry.root / "1" / "models" / MODEL_ID / "artifacts")
    for _ in range(2):
        done = await served.knodel("deploy", "churn", "--uri", "models:/churn/8", "--no-wait")
        assert done.code == 0, done.err
    model = await served.model("churn")
    assert model["spec"]["version"] == "8" and model["spec"]["digest"].startswith("sha256:")
    assert model["metadata"]["generation"] == 1  # the same bytes are the same version


async def test_a_file_of_models_names_the_store_itself(registry: Registry, served: Served) -> None:
    spec = "{storageUri: 'models:/churn@champion'}"
    text = f"{{apiVersion: knodel.dev/v1alpha1, kind: Model, metadata: {{name: m}}, spec: {spec}}}"
    done = await served.knodel("deploy", "-f", "-", stdin=text)
    check(done, 2, ["the scheme 'models' is unknown", "`knodel deploy NAME --uri models:/churn@champion` resolves it"])
