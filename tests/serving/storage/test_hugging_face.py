"""The Hugging Face Hub, with the responses of its API."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from serving.storage.base.artifact import Artifact
from serving.storage.base.digest import of_bytes, of_folder
from serving.storage.base.errors import StorageError
from serving.storage.fetch import StorageOptions, fetch
from tests.serving.storage.conftest import LOOPBACK, Store

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES: Mapping[str, bytes] = {"a b+c.txt": b"x", "config.json": b"{}", "onnx/model.onnx": b"a model" * 1000}
DIGEST = of_folder({name: of_bytes(content) for name, content in FILES.items()})


def publish(
    hub: Store, elsewhere: Store, revision: str = "main", files: Mapping[str, bytes] = FILES, **changes: str
) -> None:
    """The repository acme/magika, whose ONNX files are in LFS; `changes` are the digests that the Hub tells of them."""
    siblings = []
    for name, content in files.items():
        sibling: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": "1"}
        path = f"/acme/magika/resolve/{COMMIT}/{quote(name)}"
        if name.endswith(".onnx"):
            sha256 = changes.get("sha256", hashlib.sha256(content).hexdigest())
            sibling["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 1}
            hub.redirect(path, elsewhere.versioned("/cdn?signature=x", content, '"1"'))
        else:
            hub.file(path, content)
        siblings.append(sibling)
    listing = json.dumps({"sha": COMMIT, "siblings": siblings, "private": True}).encode()
    hub.file(f"/api/models/acme/magika/revision/{revision}?blobs=true", listing)


def get(uri: str, hub: Store, tmp_path: Path, digest: str = "") -> Artifact:
    (tmp_path / "secret").mkdir(parents=True, exist_ok=True)
    (tmp_path / "secret" / "HF_TOKEN").write_text("hf_secret\n")
    environ = {"KNODEL_CREDENTIALS": str(tmp_path / "secret"), "HF_ENDPOINT": hub.url("")}
    return fetch(uri, digest, tmp_path / "cache", LOOPBACK, options=StorageOptions(environ))


@pytest.mark.parametrize("digest", ["", DIGEST])
def test_all_files_of_the_commit_are_brought(store: Store, elsewhere: Store, tmp_path: Path, digest: str) -> None:
    publish(store, elsewhere)
    artifact = get("hf://acme/magika", store, tmp_path, digest)
    assert {name: artifact.read(name) for name in artifact.names()} == FILES


def test_the_token_is_sent_to_the_hub_and_to_nobody_else(store: Store, elsewhere: Store, tmp_path: Path) -> None:
    publish(store, elsewhere)
    get("hf://acme/magika", store, tmp_path)
    assert {headers.get("Authorization") for headers in store.headers} == {"Bearer hf_secret"}
    assert elsewhere.asked and all("Authorization" not in headers for headers in elsewhere.headers)


def test_with_a_digest_it_is_brought_once(store: Store, elsewhere: Store, tmp_path: Path) -> None:
    publish(store, elsewhere)
    for _ in range(2):
        get("hf://acme/magika", store, tmp_path, DIGEST)
    assert len(elsewhere.asked) == 1


def test_the_digest_does_not_depend_on_the_order_in_which_the_hub_lists_files(
    store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    publish(store, elsewhere, files=dict(reversed(tuple(FILES.items()))))
    assert get("hf://acme/magika", store, tmp_path).digest == DIGEST


@pytest.mark.parametrize("name", FILES)
def test_a_branch_whose_files_have_changed_is_refused_with_both_digests(
    store: Store, elsewhere: Store, tmp_path: Path, name: str
) -> None:
    publish(store, elsewhere)
    recorded = get("hf://acme/magika", store, tmp_path / "first").digest
    publish(store, elsewhere, files={**FILES, name: b"other bytes"})
    with pytest.raises(StorageError, match=recorded) as error:
        get("hf://acme/magika", store, tmp_path / "later", recorded)
    assert get("hf://acme/magika", store, tmp_path / "later").digest in str(error.value)
    assert get("hf://acme/magika", store, tmp_path / "first", recorded).digest == recorded  # from its cache


@pytest.mark.parametrize("uri", ["hf://acme/magika:v1.0", "hf://acme/magika@v1.0", "HF://acme/magika:v1.0"])
def test_a_revision_can_be_named(store: Store, elsewhere: Store, tmp_path: Path, uri: str) -> None:
    publish(store, elsewhere, "v1.0")
    assert get(uri, store, tmp_path).names() == sorted(FILES)


def test_a_file_or_folder_can_be_named(store: Store, elsewhere: Store, tmp_path: Path) -> None:
    publish(store, elsewhere)
    assert get("hf://acme/magika/onnx", store, tmp_path).names() == ["model.onnx"]
    artifact = get("hf://acme/magika:main/onnx/model.onnx", store, tmp_path)
    assert (artifact.names(), artifact.content) == (["model.onnx"], FILES["onnx/model.onnx"])


def test_what_is_not_in_the_repository_is_said(store: Store, elsewhere: Store, tmp_path: Path) -> None:
    publish(store, elsewhere)
    with pytest.raises(StorageError, match="has no files"):
        get("hf://acme/magika/tensorflow", store, tmp_path)
    with pytest.raises(StorageError, match="HF_TOKEN"):
        get("hf://acme/other", store, tmp_path)


def test_a_file_that_is_not_the_one_that_the_hub_tells_is_refused(
    store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    publish(store, elsewhere, sha256="0" * 64)
    with pytest.raises(StorageError, match="digest"):
        get("hf://acme/magika", store, tmp_path)


def test_a_redirect_to_a_private_address_is_refused(store: Store, elsewhere: Store, tmp_path: Path) -> None:
    publish(store, elsewhere)
    store.redirect(f"/acme/magika/resolve/{COMMIT}/config.json", "http://169.254.169.254/latest")
    with pytest.raises(StorageError, match=r"169\.254\.169\.254"):
        get("hf://acme/magika", store, tmp_path)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"sha": "x", "siblings": 1}', b"\xff", b"[" * 100_000, b'{"a":' + b"[" * 100_000]
)
def test_an_answer_that_is_no_listing_is_refused(store: Store, tmp_path: Path, body: bytes) -> None:
    store.file("/api/models/acme/magika/revision/main", body)
    with pytest.raises(StorageError, match="Hugging Face"):
        get("hf://acme/magika", store, tmp_path)


@pytest.mark.parametrize("name", ["../evil", "/evil", "a\\b", "a\nb", ""])
def test_names_that_could_lead_elsewhere_are_refused(store: Store, tmp_path: Path, name: str) -> None:
    listing = json.dumps({"sha": COMMIT, "siblings": [{"rfilename": name, "size": 1}]}).encode()
    store.file("/api/models/acme/magika/revision/main", listing)
    with pytest.raises(StorageError):
        get("hf://acme/magika", store, tmp_path)
    assert len(store.asked) == 1


@pytest.mark.parametrize(
    "uri",
    [
        "hf://", "hf://acme", "hf://acme/", "hf://a b/c", "hf://acme/m?x", "hf://acme/m#x", "hf://acme/m:a b",
        "hf://../../x", "hf://acme/..", "hf://../m", "hf://./m", "hf://acme/m@..", "hf://acme/m@../..", "hf://acme/..:main",
        "hf://acme/m/../x", "hf://acme/m/onnx/..",
    ],
)  # fmt: skip
def test_what_names_no_repository_is_refused(store: Store, tmp_path: Path, uri: str) -> None:
    with pytest.raises(StorageError):
        get(uri, store, tmp_path)
    assert store.asked == []
