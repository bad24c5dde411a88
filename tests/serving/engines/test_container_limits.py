"""The limits in the files of control groups."""

from __future__ import annotations

import os

import pytest

from clusters.base.quantities import MEMORY_LIMIT
from serving.engines.base.container_limits import ContainerLimits, available_cores, container_limits, limits_of

V1 = "4:memory:/pods/a\n2:cpu,cpuacct:/pods/a\n1:name=systemd:/\n"


@pytest.mark.parametrize(
    ("groups", "files", "limits"),
    [
        ("", {"memory.max": "1"}, (0.0, 0)),
        ("0::/\n", {}, (0.0, 0)),
        ("0::/\n", {"memory.max": "max\n", "cpu.max": "max 100000\n"}, (0.0, 0)),
        ("0::/\n", {"memory.max": "1073741824\n", "cpu.max": "150000 100000\n"}, (1.5, 1 << 30)),
        ("0::/\n", {"memory.max": "much", "cpu.max": "1"}, (0.0, 0)),
        ("0::/a/b\n", {"a/memory.max": "500\n", "a/b/memory.max": "700\n", "a/b/cpu.max": "max 100000"}, (0.0, 500)),
        ("0::/a/b\n", {"a/memory.max": "max\n", "a/b/memory.max": "700\n", "a/cpu.max": "50000 100000"}, (0.5, 700)),
        ("0::/../../other\n", {"memory.max": "500", "../../other/memory.max": "1"}, (0.0, 500)),
        (V1, {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, (0.0, 0)),
        (V1, {"memory/memory.limit_in_bytes": "4096\n"}, (0.0, 4096)),
        (V1, {"memory/pods/a/memory.limit_in_bytes": "4096\n", "memory/pods/memory.limit_in_bytes": "8192"},
         (0.0, 4096)),
        (V1, {"cpu/pods/a/cpu.cfs_quota_us": "200000\n", "cpu/pods/a/cpu.cfs_period_us": "100000\n"}, (2.0, 0)),
        (V1, {"cpu/pods/a/cpu.cfs_quota_us": "-1\n", "cpu/pods/a/cpu.cfs_period_us": "100000\n"}, (0.0, 0)),
        (f"{V1}0::/\n", {"memory/memory.limit_in_bytes": "4096\n", "memory.max": "8192"}, (0.0, 4096)),
    ],
)  # fmt: skip
def test_the_smallest_limit_of_a_group_and_those_above_it_holds(
    groups: str, files: dict[str, str], limits: tuple[float, int]
) -> None:
    assert limits_of(groups, lambda path: files.get(path, "")) == ContainerLimits(*limits)


def test_the_smaller_limit_of_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MEMORY_LIMIT, raising=False)
    of_groups = container_limits().memory
    for named in ("4096", str(1 << 59), "0", "much"):
        monkeypatch.setenv(MEMORY_LIMIT, named)
        known = [limit for limit in (of_groups, int(named) if named.isdigit() else 0) if limit]
        assert container_limits().memory == min(known, default=0)


def test_no_more_cores_are_available_than_the_process_may_use() -> None:
    assert 0 < available_cores() <= len(os.sched_getaffinity(0))
