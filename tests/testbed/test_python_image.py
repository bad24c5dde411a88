"""The Python images: byte code that a read-only container uses, our packages, and the libraries of a program."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.base.distribution import VERSION
from tests.testbed import libraries, python_image
from tests.testbed.bytecode import with_bytecode
from tests.testbed.errors import TestbedError
from tests.testbed.trees import FileDigests, data

LDD = """\
\tlinux-vdso.so.1 (0x00007f449ce20000)
\tlibz.so.1 => /opt/lib/libz.so.1 (0x00007f449c800000)
\tlibc.so.6 => /lib/libc.so.6 (0x00007f449c61e000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f449ce22000)
"""


def test_a_module_is_imported_from_its_byte_code_whatever_the_time_of_its_source(tmp_path: Path) -> None:
    for name, entry in with_bytecode({"said.py": data("print('said by', __file__)")}).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(entry.content.read() if entry.content else b"")
    (tmp_path / "said.py").write_text("print('read from the source')")
    done = subprocess.run(
        [sys.executable, "-c", "import said"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"said by {tmp_path / 'said.py'}\n"


def test_byte_code_is_named_as_this_interpreter_looks_for_it_and_changes_with_its_source(tmp_path: Path) -> None:
    digests = FileDigests(tmp_path / "digests.json")
    before, after = (with_bytecode({"a/b.py": data(text)}) for text in ("x = 1", "x = 2"))
    name = importlib.util.cache_from_source("a/b.py")
    assert sorted(before) == sorted(["a/b.py", name])
    assert before[name].identity(digests) != after[name].identity(digests)


def test_a_module_that_is_no_python_is_named() -> None:
    content = with_bytecode({"a.py": data("def")})[importlib.util.cache_from_source("a.py")].content
    assert content is not None
    with pytest.raises(TestbedError, match=r"a\.py cannot be compiled"):
        content.read()


def test_the_application_is_our_packages_with_the_version_of_the_project() -> None:
    tree = python_image.application()
    site = str(python_image.SITE)
    assert f"{site}/serving/modelserver/main.py" in tree
    assert f"{site}/serving/modelserver/__pycache__/main.{sys.implementation.cache_tag}.pyc" in tree
    assert not [path for path in tree if "/tests/" in path]
    metadata = tree[f"{site}/knodel-{VERSION}.dist-info/METADATA"].content
    assert metadata is not None
    assert f"Version: {VERSION}\n".encode() in metadata.read()


def test_a_program_comes_with_its_libraries_beside_the_c_library_and_the_loader_in_its_place() -> None:
    found, loaders = libraries.parse(LDD)
    assert {name: str(path) for name, path in found.items()} == {
        "libz.so.1": "/opt/lib/libz.so.1",
        "libc.so.6": "/lib/libc.so.6",
    }
    assert loaders == {Path("/lib64/ld-linux-x86-64.so.2")}
    mine = libraries.needed([Path(sys.executable).resolve()])
    c_library = next(path for path in mine if path.endswith("/libc.so.6"))
    beside = {str(Path(path).parent) for path in mine if "/ld-linux" not in path and "/ld-musl" not in path}
    assert beside == {str(Path(c_library).parent)}


def test_a_library_that_is_not_on_this_machine_is_named() -> None:
    with pytest.raises(TestbedError, match=r"libgone\.so\.1 is not on this machine"):
        libraries.parse("\tlibgone.so.1 => not found\n")
