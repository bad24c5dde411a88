"""Importing a user's `model.py` and making an object of its class.

Files beside it can be imported relatively, and by name: installed packages of that name come first, and so does what
another model in this process has imported by it. No bytecode is written, by this process any more, since code may be
imported at any time: the folder stays as it was, and so does its digest.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from clusters.base.redact import one_line
from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import Folder
from serving.engines.base.reasons import LONGEST
from serving.engines.python.stages import PREDICT

FILE: Final = "model.py"
CLASS: Final = "Model"
_numbers: Final = itertools.count(1)


class UserModule:
    """The module of `model.py` in `place`, a folder within `folder`, until `close`."""

    def __init__(self, folder: Folder, place: Path) -> None:
        self._folder = folder
        self._place = place
        self._name = f"knodel_model_{next(_numbers)}"  # several models may be loaded
        sys.dont_write_bytecode = True
        sys.path.append(str(place))
        try:
            with self.user_code("import"):
                self._module = self._imported()
        except BaseException:
            self.close()
            raise

    def instance(self) -> Any:
        """An object of the class `Model`, or of the only class that has `predict`. Raises LoadFailed."""
        made = self._class()
        with self.user_code(f"{made.__name__}()"):
            return made()

    @contextmanager
    def user_code(self, what: str) -> Iterator[None]:
        """Around user's code while the model is loaded: what it raises is a LoadFailed that names its line."""
        try:
            yield
        except LoadFailed:
            raise
        except BaseException as error:  # also of one that exits
            raise LoadFailed(f"{what} failed: {self._reason_of(error)}") from error

    def close(self) -> None:
        """Forget the module, and those beside it."""
        own = [name for name, module in list(sys.modules.items()) if self._is_own(getattr(module, "__file__", None))]
        for name in own:
            del sys.modules[name]
        if str(self._place) in sys.path:
            sys.path.remove(str(self._place))

    def _imported(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location(
            self._name, self._place / FILE, submodule_search_locations=[str(self._place)]
        )
        if spec is None or spec.loader is None:
            raise LoadFailed(f"{FILE} is no Python module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[self._name] = module
        spec.loader.exec_module(module)
        return module

    def _class(self) -> type[Any]:
        named = getattr(self._module, CLASS, None)
        if isinstance(named, type):
            return named
        found = [
            value for value in vars(self._module).values()
            if isinstance(value, type) and value.__module__ == self._name and hasattr(value, PREDICT)
        ]  # fmt: skip
        if len(found) != 1:
            raise LoadFailed(f"{FILE} has {len(found)} classes with a method {PREDICT}: call the one to serve {CLASS}")
        return found[0]

    def _reason_of(self, error: BaseException) -> str:
        """The error on one line, with the user's line that it comes from and without places on this machine."""
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if self._is_own(frame.filename)]
        where = f"{Path(frames[-1].filename).name} line {frames[-1].lineno}: " if frames else ""
        words = self._folder.without_path(f"{type(error).__name__}: {error}")
        return one_line(f"{where}{words}", LONGEST)

    def _is_own(self, file: str | None) -> bool:
        return file is not None and Path(file).is_relative_to(self._place)
