"""What the kernel's table of mounts says."""

from __future__ import annotations

from pathlib import Path

from tests.testbed import mounts

TABLE = (
    "21 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "95 21 0:50 / /state/a\\040b rw shared:9 master:1 - overlay overlay rw,lowerdir=/x - y\n"
)


def test_a_line_gives_the_place_and_the_kind_also_with_optional_fields_and_spaces() -> None:
    assert mounts.parse(TABLE) == [mounts.Mount(Path("/"), "ext4"), mounts.Mount(Path("/state/a b"), "overlay")]
