"""Models in OCI images."""

from __future__ import annotations

import json
import platform
import tarfile
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from serving.storage.base.artifact import Artifact
from serving.storage.base.digest import of_bytes
from serving.storage.base.errors import StorageError
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.sources.oci import LARGEST_IMAGE
from serving.storage.sources.oci_reference import basic_credentials, parse_reference
from serving.storage.transfer.limits import TransferLimits
from tests.serving.storage.archives import MODEL, tar, tar_entry, tar_of
from tests.serving.storage.conftest import LOOPBACK, ONCE, Store
from tests.serving.storage.images import LOGIN, Registry

LAYER = tar({f"models/{name}": content for name, content in MODEL.items()}, "gz")
BASE = tar_of(
    [tar_entry("bin/sh", kind=tarfile.SYMTYPE, link="/bin/busybox"), tar_entry("dev/null", kind=tarfile.CHRTYPE),
     tar_entry("lib/systemd/a\\x2db.slice", b"x"), tar_entry("modelsx/evil", b"x")], "gz",
)  # fmt: skip
OTHER = "sha256:" + "0" * 64


@pytest.fixture
def registry(store: Store, elsewhere: Store) -> Registry:
    return Registry(store, elsewhere)


def get(uri: str, tmp_path: Path, digest: str = "", config: str = "", limits: TransferLimits = ONCE) -> Artifact:
    (tmp_path / "secret").mkdir(exist_ok=True)
    if config:
        (tmp_path / "secret" / ".dockerconfigjson").write_text(config)
    options = StorageOptions({"KNODEL_CREDENTIALS": str(tmp_path / "secret")}, limits=limits)
    return fetch(uri, digest, tmp_path / "cache", LOOPBACK, options=options)


def content(artifact: Artifact) -> dict[str, bytes]:
    return {name: artifact.read(name) for name in artifact.names()}


def test_the_files_below_models_are_brought_and_nothing_else(registry: Registry, tmp_path: Path) -> None:
    registry.push([BASE, LAYER])
    assert content(get(registry.uri(), tmp_path)) == MODEL


def test_its_digest_is_that_of_the_manifest(registry: Registry, tmp_path: Path) -> None:
    digest = registry.push([LAYER], "v1")
    assert content(get(registry.uri(":v1"), tmp_path, digest)) == MODEL
    assert content(get(registry.uri(f"@{digest}"), tmp_path)) == MODEL
    with pytest.raises(StorageError, match="digest"):
        get(registry.uri(":v1"), tmp_path, OTHER)


def test_with_a_digest_it_is_brought_once(registry: Registry, store: Store, elsewhere: Store, tmp_path: Path) -> None:
    digest = registry.push([BASE, LAYER])
    get(registry.uri(), tmp_path, digest)
    asked = len(store.asked)
    assert content(get(registry.uri(), tmp_path, digest)) == MODEL
    assert len(store.asked) == asked and len(elsewhere.asked) == 2


def test_later_layers_replace_and_delete_what_earlier_ones_have(registry: Registry, tmp_path: Path) -> None:
    first = tar({"models/a": b"1", "models/b": b"1", "models/d/x": b"1", "models/d/y": b"1", "models/e/x": b"1"})
    second = tar({"models/a": b"2", "models/.wh.b": b"", "models/d/z": b"2", "models/d/.wh..wh..opq": b"",
                  "models/.wh.e": b""})  # fmt: skip
    registry.push([first, second])
    assert content(get(registry.uri(), tmp_path)) == {"a": b"2", "d/z": b"2"}


def test_of_an_index_the_image_for_this_machine_is_taken(registry: Registry, tmp_path: Path) -> None:
    right = registry.push([LAYER], "right")
    wrong = registry.push([tar({"models/wrong": b"x"})], "wrong")
    mine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    digest = registry.push_index({"s390x": wrong, mine: right})
    assert content(get(registry.uri(), tmp_path, digest)) == MODEL


@pytest.mark.parametrize(
    "entry",
    [tar_entry("models/evil", kind=tarfile.SYMTYPE, link="/etc/passwd"), tar_entry("models/../evil", b"x"),
     tar_entry("models/evil", kind=tarfile.LNKTYPE, link="etc/passwd"), tar_entry("models/a/../../../evil", b"x")],
)  # fmt: skip
def test_what_is_hostile_below_models_refuses_the_image(
    registry: Registry, tmp_path: Path, entry: tuple[tarfile.TarInfo, bytes]
) -> None:
    registry.push([tar_of([entry, tar_entry("models/a", b"x")])])
    with pytest.raises(StorageError):
        get(registry.uri(), tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_image_without_a_model_is_refused(registry: Registry, tmp_path: Path) -> None:
    registry.push([BASE])
    with pytest.raises(StorageError, match="/models"):
        get(registry.uri(), tmp_path)


def test_a_layer_that_is_not_the_one_that_the_manifest_names_is_refused(
    registry: Registry, elsewhere: Store, tmp_path: Path
) -> None:
    registry.push([LAYER])
    elsewhere.versioned(f"/{of_bytes(LAYER)}?signature=x", b"x" * len(LAYER), '"1"')
    with pytest.raises(StorageError, match="digest"):
        get(registry.uri(), tmp_path)


def test_a_manifest_that_is_not_the_one_that_was_asked_for_is_refused(
    registry: Registry, store: Store, tmp_path: Path
) -> None:
    digest = registry.push([LAYER])
    store.answers = {path.replace(digest, OTHER): answer for path, answer in store.answers.items()}
    with pytest.raises(StorageError, match="digest"):
        get(registry.uri(f"@{OTHER}"), tmp_path)


def test_a_private_registry_gets_the_login_and_the_blob_store_does_not(
    store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    registry = Registry(store, elsewhere, private=True)
    registry.push([LAYER])
    host = f"127.0.0.1:{store.server.server_port}"
    assert content(get(registry.uri(), tmp_path, config=json.dumps({"auths": {host: {"auth": LOGIN}}}))) == MODEL
    assert elsewhere.asked and all("Authorization" not in headers for headers in elsewhere.headers)


@pytest.mark.parametrize("digest_known", [True, False])
def test_a_token_that_ends_between_layers_or_within_one_is_replaced(
    store: Store, elsewhere: Store, tmp_path: Path, digest_known: bool
) -> None:
    registry = Registry(store, elsewhere, private=True, lasts=1)
    blobs = [registry.blob(BASE), registry.blob(LAYER, breaks=[50])]
    digest = registry.push_manifest({"schemaVersion": 2, "layers": blobs})
    host = f"127.0.0.1:{store.server.server_port}"
    config = json.dumps({"auths": {host: {"auth": LOGIN}}})
    limits = TransferLimits(pause=0, files_at_once=1)  # a token of this registry serves a single request
    found = get(registry.uri(), tmp_path, digest if digest_known else "", config, limits)
    assert content(found) == MODEL
    assert sum(path.startswith("/token") for path in store.asked) == 4
    assert [headers.get("Range") for headers in elsewhere.headers] == [None, None, "bytes=50-"]


def test_a_layer_that_comes_twice_is_downloaded_once(registry: Registry, elsewhere: Store, tmp_path: Path) -> None:
    layers = [registry.blob(layer) for layer in (LAYER, BASE, LAYER)]
    registry.push_manifest({"schemaVersion": 2, "layers": layers})
    assert content(get(registry.uri(), tmp_path)) == MODEL
    assert len(elsewhere.asked) == 2


def test_a_blob_store_cannot_ask_for_the_login(store: Store, elsewhere: Store, tmp_path: Path) -> None:
    registry = Registry(store, elsewhere, private=True)
    registry.push([LAYER])

    def ask_for_login(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(401)
        handler.send_header("WWW-Authenticate", f'Bearer realm="{elsewhere.url("/steal")}",service="x"')
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    elsewhere.answers[f"/{of_bytes(LAYER)}?signature=x"] = ask_for_login
    host = f"127.0.0.1:{store.server.server_port}"
    with pytest.raises(StorageError, match="401"):
        get(registry.uri(), tmp_path, config=json.dumps({"auths": {host: {"auth": LOGIN}}}))
    assert len(elsewhere.asked) == 1


def test_a_layer_that_is_larger_than_the_manifest_says_is_not_brought(registry: Registry, tmp_path: Path) -> None:
    descriptor = {**registry.blob(LAYER), "size": len(LAYER) - 1}
    registry.push_manifest({"schemaVersion": 2, "layers": [descriptor]})
    with pytest.raises(StorageError, match="limit"):
        get(registry.uri(), tmp_path)


@pytest.mark.parametrize("size", [LARGEST_IMAGE // 2 + 1, -1])
def test_layers_that_are_too_large_together_are_not_asked_for(
    registry: Registry, elsewhere: Store, tmp_path: Path, size: int
) -> None:
    descriptors = [{**registry.blob(layer), "size": size} for layer in (LAYER, BASE)]
    registry.push_manifest({"schemaVersion": 2, "layers": descriptors})
    with pytest.raises(StorageError, match="layers"):
        get(registry.uri(), tmp_path)
    assert elsewhere.asked == []


def test_a_later_layer_may_put_a_file_for_a_folder_and_a_folder_for_a_file(registry: Registry, tmp_path: Path) -> None:
    first = tar({"models/a/x": b"1", "models/a/y/z": b"1", "models/b": b"1", "models/c/x": b"1", "models/d": b"1"})
    second = tar_of([
        tar_entry("models/a", b"2"), tar_entry("models/b/x/y", b"2"), tar_entry("models/.wh.c"),
        tar_entry("models/c", b"2"), tar_entry("models/d", kind=tarfile.DIRTYPE),
    ])  # fmt: skip
    registry.push([first, second])
    assert content(get(registry.uri(), tmp_path)) == {"a": b"2", "b/x/y": b"2", "c": b"2"}


def test_without_a_login_a_private_registry_refuses(store: Store, elsewhere: Store, tmp_path: Path) -> None:
    registry = Registry(store, elsewhere, private=True)
    registry.push([LAYER])
    with pytest.raises(StorageError, match="dockerconfigjson"):
        get(registry.uri(), tmp_path)


@pytest.mark.parametrize(
    "manifest",
    [{}, {"layers": []}, {"layers": 1}, {"layers": [{"digest": "../x", "size": 1}]},
     {"layers": [{"digest": OTHER, "size": 1}] * 129}, {"manifests": [{"digest": "", "size": 1}]}],
)  # fmt: skip
def test_a_manifest_that_makes_no_sense_is_refused(
    registry: Registry, tmp_path: Path, manifest: dict[str, object]
) -> None:
    registry.push_manifest(manifest)
    with pytest.raises(StorageError):
        get(registry.uri(), tmp_path)


def test_what_the_registry_does_not_have_is_said(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such manifest"):
        get(registry.uri(":missing"), tmp_path)


def test_a_private_address_is_refused_unless_allowed(registry: Registry, store: Store, tmp_path: Path) -> None:
    registry.push([LAYER])
    with pytest.raises(StorageError, match="private"):
        fetch(registry.uri(), "", tmp_path / "cache", frozenset(), options=StorageOptions({}))
    assert store.asked == []


@pytest.mark.parametrize(
    "uri",
    ["oci://", "oci://host", "oci://host/", "oci://host/UPPER", "oci://host/a//b", "oci://host/../b", "oci://u@host/a",
     "oci://host/a:b c", "oci://host/a@sha256:abc", "oci://host/a?b", "oci://host/a:", "oci://ho st/a"],
)  # fmt: skip
def test_what_is_no_reference_is_refused(uri: str) -> None:
    with pytest.raises(StorageError):
        parse_reference(uri)


@pytest.mark.parametrize(
    ("uri", "base", "manifest"),
    [
        ("oci://quay.io/acme/m:v1", "https://quay.io/v2/acme/m", "v1"),
        ("oci://docker.io/busybox", "https://registry-1.docker.io/v2/library/busybox", "latest"),
        (f"oci://ghcr.io/acme/m:v1@{OTHER}", "https://ghcr.io/v2/acme/m", OTHER),
        ("oci://localhost:5000/m", "http://localhost:5000/v2/m", "latest"),
        ("oci://registry.internal:5000/m", "https://registry.internal:5000/v2/m", "latest"),
    ],
)
def test_a_reference_tells_where_to_ask(uri: str, base: str, manifest: str) -> None:
    assert (parse_reference(uri).base, parse_reference(uri).manifest) == (base, manifest)


@pytest.mark.parametrize("key", ["quay.io", "https://quay.io"])
@pytest.mark.parametrize("login", [{"auth": LOGIN}, {"username": "user", "password": "password", "auth": "x"}])
def test_a_login_is_found_by_the_host(key: str, login: dict[str, str]) -> None:
    config = json.dumps({"auths": {"other.io": {"auth": "other"}, key: login}}).encode()
    assert basic_credentials(config, "quay.io") == LOGIN
    assert basic_credentials(config, "docker.io") == ""


@pytest.mark.parametrize("config", [b"", b"[]", b'{"auths": 1}', b'{"auths": {"quay.io": {"auth": "%"}}}', b"\xff"])
def test_a_config_that_cannot_be_read_is_refused(config: bytes) -> None:
    with pytest.raises(StorageError, match=r"config\.json"):
        basic_credentials(config, "quay.io")
