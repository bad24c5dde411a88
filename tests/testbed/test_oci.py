"""OCI archives as containerd imports them."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.testbed.layers import PLAIN, LayerStore
from tests.testbed.oci import Image, write_archive
from tests.testbed.trees import data


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(tmp_path / "layers", PLAIN)


def image(store: LayerStore, name: str = "dev.local/x:1", content: str = "x") -> Image:
    layers = [store.layer({"base": data("base")}), store.layer({"x": data(content)})]
    return Image(name, layers, ["/x"], ["--help"], {"B": "2", "A": "1"})


class Archive:
    """What is in an archive, by digest."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as tar:
            self.files = {member.name: _read(tar, member) for member in tar}

    def json(self, name: str) -> Any:
        return json.loads(self.files[name])

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        found = self.files["blobs/" + descriptor["digest"].replace(":", "/")]
        assert len(found) == descriptor["size"]
        assert f"sha256:{hashlib.sha256(found).hexdigest()}" == descriptor["digest"]
        return found


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def test_the_same_content_makes_the_same_archive(store: LayerStore, tmp_path: Path) -> None:
    first = write_archive([image(store)], tmp_path / "one", "x")
    second = write_archive([image(LayerStore(tmp_path / "other", PLAIN))], tmp_path / "two", "x")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_every_descriptor_leads_to_a_blob_of_its_digest_and_size(store: LayerStore, tmp_path: Path) -> None:
    archive = Archive(write_archive([image(store)], tmp_path, "x"))
    assert archive.json("oci-layout") == {"imageLayoutVersion": "1.0.0"}
    [descriptor] = archive.json("index.json")["manifests"]
    assert descriptor["annotations"]["io.containerd.image.name"] == "dev.local/x:1"
    manifest = json.loads(archive.blob(descriptor))
    config = json.loads(archive.blob(manifest["config"]))
    layers = [hashlib.sha256(archive.blob(layer)).hexdigest() for layer in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{layer}" for layer in layers]


def test_the_configuration_says_how_the_image_starts(store: LayerStore, tmp_path: Path) -> None:
    archive = Archive(write_archive([image(store)], tmp_path, "x"))
    manifest = json.loads(archive.blob(archive.json("index.json")["manifests"][0]))
    assert json.loads(archive.blob(manifest["config"]))["config"] == {
        "User": "65532:65532",
        "Env": ["A=1", "B=2"],
        "Entrypoint": ["/x"],
        "Cmd": ["--help"],
        "WorkingDir": "/",
    }


def test_a_layer_of_two_images_is_in_their_archive_once(store: LayerStore, tmp_path: Path) -> None:
    images = [image(store), image(store, "dev.local/y:1", "y")]
    archive = Archive(write_archive(images, tmp_path, "both"))
    blobs = [name for name in archive.files if name.startswith("blobs/")]
    assert len(blobs) == len({"base", "x", "y"}) + len(images) * len({"manifest", "config"})


def test_an_older_archive_of_the_name_goes_and_others_stay(store: LayerStore, tmp_path: Path) -> None:
    other = write_archive([image(store)], tmp_path, "x-other")
    old = write_archive([image(store, content="old")], tmp_path, "x")
    new = write_archive([image(store, content="new")], tmp_path, "x")
    assert (old.exists(), new.exists(), other.exists()) == (False, True, True)
