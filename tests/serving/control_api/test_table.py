"""Columns of the command's listings."""

from __future__ import annotations

from clusters.base.objects import MODEL
from serving.control_api.table import columns_of


def test_the_version_of_a_model_is_the_one_that_has_the_traffic() -> None:
    [column] = [column for column in columns_of(MODEL) if column.name == "Version"]
    traffic = [{"revision": "m-00001", "version": "1", "percent": 100}]
    assert column.cell({"spec": {"version": "2"}, "status": {"traffic": traffic}}) == "1"
    assert column.cell({"spec": {"version": "2"}}) == ""
