"""Import a user's `model.py` and create an instance of its class.

Files beside it can be imported relatively, and absolutely by name. An installed package of the same name has priority,
and so has a module of that name that another model in this process has imported. This process writes no bytecode any
more, because code may be imported at any time, and a changed folder would have another digest.
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
from serving.engines.base.errors import MAX_REASON, LoadFailed
from serving.engines.base.folder import ModelFolder
from serving.engines.python.stages import PREDICT

FILE: Final = "model.py"
CLASS: Final = "Model"
_numbers: Final = itertools.count(1)


class UserModule:
    """The module of `model.py` in `place`, a folder inside `folder`, until `close`."""

    def __init__(self, folder: ModelFolder, place: Path) -> None:
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
        """Return an instance of the class `Model`, or of the only class with `predict`. Raises LoadFailed."""
        made = self._class()
        with self.user_code(f"{made.__name__}()"):
            return made()

    @contextmanager
    def user_code(self, what: str) -> Iterator[None]:
        """Turn an error of user code inside the block into a LoadFailed with its line; `what` names the code."""
        try:
            yield
        except LoadFailed:
            raise
        except BaseException as error:  # user code may call sys.exit()
            raise LoadFailed(f"{what} failed: {self._reason_of(error)}") from error

    def close(self) -> None:
        """Remove the module, and those beside it, from Python's modules."""
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
            raise LoadFailed(f"{FILE} is not a Python module")
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
            raise LoadFailed(
                f"{FILE} has {len(found)} classes with a method {PREDICT}: rename the one to serve to {CLASS}"
            )
        return found[0]

    def _reason_of(self, error: BaseException) -> str:
        """Return the error on one line, with its line in user code and without paths of this machine."""
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if self._is_own(frame.filename)]
        where = f"{Path(frames[-1].filename).name} line {frames[-1].lineno}: " if frames else ""
        message = self._folder.without_path(f"{type(error).__name__}: {error}")
        return one_line(f"{where}{message}", MAX_REASON)

    def _is_own(self, file: str | None) -> bool:
        return file is not None and Path(file).is_relative_to(self._place)
