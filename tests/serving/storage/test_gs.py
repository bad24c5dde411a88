"""Google Cloud Storage: its XML API, and access tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from xml.sax.saxutils import escape

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from serving.storage.base.artifact import Artifact
from serving.storage.base.digest import of_bytes
from serving.storage.base.errors import StorageError
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.sources import gs_token
from serving.storage.transfer.limits import TransferLimits
from tests.serving.storage.archives import MODEL
from tests.serving.storage.conftest import LOOPBACK, Store, downloader

jwt = pytest.importorskip("google.auth.jwt")

TOKEN = "ya29.token"
AUDIENCE = "https://oauth2.googleapis.com/token"  # of the library, whatever the key's token_uri is
PAGE = 1  # keys; every list has several pages


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Google:
    """Serve a private bucket `models` and the token endpoint of Google with a `Store`."""

    def __init__(self, store: Store, files: Mapping[str, bytes], key: rsa.RSAPrivateKey) -> None:
        self._files = files
        self._key = key
        self.store = store
        self.open = False
        self.lasts = 3600  # s; of a token, of which only the last one that was given opens anything
        self._given = 0
        store.answers["/token"] = self._give_token
        store.answers["/models"] = self._list
        for name, content in files.items():
            store.file(f"/models/{quote(name)}", content)
            store.answers[f"/models/{quote(name)}"] = self._guarded(store.answers[f"/models/{quote(name)}"])

    def service_account(self, **changes: str) -> str:
        """Return the key file of a service account."""
        private = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        account = {"type": "service_account", "client_email": "reader@acme", "private_key": private,
                   "private_key_id": "1", "token_uri": self.store.url("/token")}  # fmt: skip
        return json.dumps({**account, **changes})

    def _give_token(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
        public = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        claims = jwt.decode(parse_qs(body)["assertion"][0], certs=public, audience=AUDIENCE)
        assert (claims["iss"], claims["scope"]) == ("reader@acme", gs_token.SCOPE)
        self._given += 1
        token = f"{TOKEN}-{self._given}"
        _send(handler, json.dumps({"access_token": token, "expires_in": self.lasts, "token_type": "Bearer"}).encode())

    def _list(self, handler: BaseHTTPRequestHandler) -> None:
        if not self._admits(handler):
            return
        query = parse_qs(urlsplit(handler.path).query)
        prefix, after = query.get("prefix", [""])[0], query.get("continuation-token", [""])[0]
        keys = [key for key in sorted(self._files) if key.startswith(prefix) and key > after]
        entries = "".join(
            f"<Contents><Key>{escape(quote(key))}</Key><Size>{len(self._files[key])}</Size></Contents>"
            for key in keys[:PAGE]
        )
        more = f"<NextContinuationToken>{escape(keys[0])}</NextContinuationToken>" if len(keys) > PAGE else ""
        space = "http://doc.s3.amazonaws.com/2006-03-01"
        page = f"<ListBucketResult xmlns='{space}'><EncodingType>url</EncodingType>{entries}{more}</ListBucketResult>"
        _send(handler, page.encode())

    def _guarded(self, answer: Any) -> Any:
        return lambda handler: answer(handler) if self._admits(handler) else None

    def _admits(self, handler: BaseHTTPRequestHandler) -> bool:
        if self.open or handler.headers.get("Authorization") == f"Bearer {TOKEN}-{self._given}":
            return True
        handler.send_error(403)
        return False


def _send(handler: BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


@pytest.fixture
def google(store: Store, key: rsa.RSAPrivateKey) -> Google:
    return Google(store, {"m.onnx": b"a model", **{f"a b/{name}": content for name, content in MODEL.items()}}, key)


def get(
    uri: str, google: Google, tmp_path: Path, account: str = "", digest: str = "", limits: TransferLimits | None = None
) -> Artifact:
    (tmp_path / "secret").mkdir(exist_ok=True)
    if account:
        (tmp_path / "secret" / gs_token.KEY_FILE).write_text(account)
    environ = {"KNODEL_CREDENTIALS": str(tmp_path / "secret"), "STORAGE_EMULATOR_HOST": google.store.url("")}
    return fetch(uri, digest, tmp_path / "cache", LOOPBACK, options=StorageOptions(environ, limits=limits))


def content(artifact: Artifact) -> dict[str, bytes]:
    return {name: artifact.read(name) for name in artifact.names()}


def test_an_object_and_a_prefix_with_the_key_of_a_service_account(google: Google, tmp_path: Path) -> None:
    account = google.service_account()
    assert content(get("gs://models/m.onnx", google, tmp_path, account, of_bytes(b"a model"))) == {"m.onnx": b"a model"}
    assert content(get("gs://models/a b", google, tmp_path, account)) == MODEL
    assert google.store.asked.count("/token") == 2


def test_a_token_that_ends_is_replaced(google: Google, tmp_path: Path) -> None:
    google.lasts = 1
    one = TransferLimits(files_at_once=1)  # a new token of this store ends the one before
    assert content(get("gs://models/a b/", google, tmp_path, google.service_account(), limits=one)) == MODEL
    assert google.store.asked.count("/token") == len(google.store.asked) / 2


def test_a_token_of_the_pod_is_used_until_it_ends(store: Store) -> None:
    now = [0.0]
    store.file(gs_token._METADATA, json.dumps({"access_token": "x", "expires_in": 300}).encode())
    host = store.url("").removeprefix("http://")
    tokens = gs_token.PodIdentity(host, downloader().client, "uri", lambda: now[0])
    for now[0], asked in ((0.0, 1), (200.0, 1), (299.0, 2)):
        assert tokens() == "x" and len(store.asked) == asked


def test_without_a_key_the_bucket_is_asked_anonymously(google: Google, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="403"):
        get("gs://models/m.onnx", google, tmp_path)
    google.open = True
    assert get("gs://models/m.onnx", google, tmp_path).content == b"a model"
    assert "/token" not in google.store.asked


def by_file(path: Path, google: Google, tmp_path: Path) -> Artifact:
    environ = {"STORAGE_EMULATOR_HOST": google.store.url(""), "GOOGLE_APPLICATION_CREDENTIALS": str(path)}
    return fetch("gs://models/m.onnx", "", tmp_path / "cache", LOOPBACK, options=StorageOptions(environ))


def test_a_key_in_a_file_that_the_environment_names(google: Google, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(google.service_account())
    assert by_file(tmp_path / "key.json", google, tmp_path).content == b"a model"


def test_a_key_that_is_not_where_the_environment_says(google: Google, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        by_file(tmp_path / "missing.json", google, tmp_path)


def by_pod(google: Google, tmp_path: Path, body: bytes) -> Artifact:
    host = google.store.url("").removeprefix("http://")
    google.store.file("/computeMetadata/v1/instance/service-accounts/default/token", body)
    environ = {"STORAGE_EMULATOR_HOST": google.store.url(""), "GCE_METADATA_HOST": host}
    return fetch("gs://models/m.onnx", "", tmp_path / "cache", LOOPBACK, options=StorageOptions(environ))


def test_the_identity_of_the_pod_where_its_host_is_allowed(google: Google, tmp_path: Path) -> None:
    assert by_pod(google, tmp_path, json.dumps({"access_token": f"{TOKEN}-0"}).encode()).content == b"a model"
    assert google.store.headers[0]["Metadata-Flavor"] == "Google"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"a":' + b"[" * 100_000])
def test_a_metadata_service_that_answers_otherwise_is_refused(google: Google, tmp_path: Path, body: bytes) -> None:
    with pytest.raises(StorageError, match="metadata"):
        by_pod(google, tmp_path, body)


@pytest.mark.parametrize("account", ["x", "[]", "{}", '"x"', "{" * 10, '{"type": "authorized_user"}'])
def test_what_is_no_key_of_a_service_account_is_refused(google: Google, tmp_path: Path, account: str) -> None:
    with pytest.raises(StorageError, match="service account"):
        get("gs://models/m.onnx", google, tmp_path, account)


def test_a_token_that_ends_at_no_date_is_refused(google: Google, tmp_path: Path) -> None:
    google.lasts = 10**30
    with pytest.raises(StorageError, match="no access token"):
        get("gs://models/m.onnx", google, tmp_path, google.service_account())


def test_a_key_that_sends_the_token_request_to_a_private_address_is_refused(google: Google, tmp_path: Path) -> None:
    account = google.service_account(token_uri="http://169.254.169.254/token")
    with pytest.raises(StorageError, match=r"169\.254\.169\.254"):
        get("gs://models/m.onnx", google, tmp_path, account)
