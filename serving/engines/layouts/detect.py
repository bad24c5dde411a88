"""Find the layout of a fetched folder by the name of its description file.

To add a layout, write `detect(artifact, names, model) -> Layout | None` in a module of its own and call it here. Import
it only when the description file is there: plain folders must not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from serving.engines.layouts import numbered
from serving.engines.layouts.layout import Layout

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

_TRITON: Final = "config.pbtxt"


def find_layout(artifact: Artifact, model: str) -> Layout:
    """Return the layout of the files of the model called `model`; a plain one when no description file is there.

    Raises LoadFailed for a description that cannot be served, and StorageError.
    """
    if artifact.content is not None:
        return Layout(artifact)
    names = artifact.names()
    layout = None
    if any(name.rpartition("/")[2] == _TRITON for name in names):
        from serving.engines.layouts import triton  # heavy; only its own folders pay

        layout = triton.detect(artifact, names, model)
    if layout is None and "config.json" in names:
        from serving.engines.layouts import huggingface

        layout = huggingface.detect(artifact, names)
    return layout or numbered.detect(artifact, names) or Layout(artifact)
