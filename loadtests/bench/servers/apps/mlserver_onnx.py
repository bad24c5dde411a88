"""An ONNX file as a custom runtime of MLServer, which has none for this format."""

from __future__ import annotations

from typing import Any

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxModel(MLModel):  # type: ignore[misc] # not installed here, so it is Any
    """A model with one file. Each of its outputs is an output of the response."""

    _session: Any
    _names: list[str]

    async def load(self) -> bool:
        """Load the file."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        path = self.settings.parameters.uri
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer one request."""
        given = payload.inputs[0]
        answers = self._session.run(self._names, {given.name: NumpyCodec.decode_input(given)})
        outputs = [NumpyCodec.encode_output(name, array) for name, array in zip(self._names, answers, strict=True)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
