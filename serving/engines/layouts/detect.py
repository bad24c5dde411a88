"""Find the layout of a fetched folder by the name of its description file.

To add a layout, write `detect(artifact, names, model) -> Layout | None` in a module of its own and list it in
`_DETECTORS`. It must be quick for folders of other layouts: only `names` is read then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from serving.engines.layouts import numbered, triton
from serving.engines.layouts.layout import Layout

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

_Detector = Callable[["Artifact", Sequence[str], str], Layout | None]
_DETECTORS: Final[tuple[_Detector, ...]] = (triton.detect, numbered.detect)
"""The first that returns a layout wins."""


def find_layout(artifact: Artifact, model: str) -> Layout:
    """Return the layout of the files of the model called `model`; a plain one when no description file is there.

    Raises LoadFailed for a description that cannot be served, and StorageError.
    """
    if artifact.content is not None:
        return Layout(artifact)
    names = artifact.names()
    found = (detector(artifact, names, model) for detector in _DETECTORS)
    return next((layout for layout in found if layout is not None), Layout(artifact))
