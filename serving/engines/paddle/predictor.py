"""PaddlePaddle's predictor. Only the process of a model imports this module (`serving.engines.child.main`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import BaseEngine, Cancellation, EngineOptions, Signature
from serving.engines.base.errors import InferenceFailed, InputRefused, LoadFailed, short_reason
from serving.engines.paddle.library import core, inference
from serving.engines.paddle.program import Program, files_of, program_of

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "paddle_inference"
_REFUSALS: Final = (ValueError, IndexError)  # InvalidArgument and OutOfRange in Python


def load(artifact: Artifact, options: EngineOptions) -> PaddleEngine:
    """Load a folder with `NAME.pdiparams` and `NAME.json` or `NAME.pdmodel`. Raises LoadFailed, StorageError."""
    program_file, parameters = files_of(artifact)
    program = program_of(program_file, artifact.read(program_file), core.ProgramDesc)
    if not options.allow_code:
        program.refuse_unsafe_operators()
    config = inference.Config(str(artifact.path / program_file), str(artifact.path / parameters))
    config.disable_gpu()
    config.disable_glog_info()
    config.set_cpu_math_library_num_threads(options.threads)
    try:
        return PaddleEngine(inference.create_predictor(config), program)
    except LoadFailed:
        raise
    except Exception as error:  # the library's errors have no common base class
        raise LoadFailed(f"PaddlePaddle cannot load {artifact.uri}: {short_reason(error)}") from error


class PaddleEngine(BaseEngine):
    """A predictor. Every call must come from the same thread."""

    def __init__(self, predictor: Any, program: Program) -> None:
        self._predictor = predictor
        inputs, outputs = predictor.get_input_names(), predictor.get_output_names()
        unknown = [name for name in inputs if name not in program.inputs]
        unknown += [name for name in outputs if name not in program.outputs]
        if unknown or not outputs:
            raise LoadFailed(f"the program does not declare its tensors {', '.join(unknown)}")
        self._inputs = {name: predictor.get_input_handle(name) for name in inputs}
        self._outputs = {name: predictor.get_output_handle(name) for name in outputs}
        specs = tuple(program.inputs[name] for name in inputs), tuple(program.outputs[name] for name in outputs)
        super().__init__(Signature(PLATFORM, *specs))

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], _: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Run the program once. Raises InputRefused, InferenceFailed."""
        try:
            for name, tensor in inputs.items():
                self._inputs[name].copy_from_cpu(np.ascontiguousarray(tensor))
            self._predictor.run()
            return [self._outputs[name].copy_to_cpu() for name in outputs]
        except _REFUSALS as error:
            raise InputRefused(short_reason(error)) from error
        except Exception as error:  # as in `load`
            raise InferenceFailed(short_reason(error)) from error

    def close(self) -> None:
        """Release the predictor."""
        self._inputs = self._outputs = {}
        self._predictor = None
