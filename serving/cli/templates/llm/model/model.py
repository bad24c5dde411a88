"""A language model by llama.cpp. `predict` yields its text in parts, which `…/generate_stream` sends one by one."""

import os
import queue
import threading

import xllamacpp

from serving.engines.base.errors import InputRefused

CONTEXT = 4096  # tokens of a prompt and its answer


class Model:
    """The class that Knodel serves. One text is generated at a time; other requests wait."""

    inputs = [
        {"name": "prompt", "datatype": "BYTES", "shape": [1]},
        {"name": "max_tokens", "datatype": "INT64", "shape": [1]},
    ]
    outputs = [{"name": "text", "datatype": "BYTES", "shape": []}]

    def load(self, folder):
        """Load the weights."""
        params = xllamacpp.CommonParams()
        params.model.path = str(folder / "weights.gguf")
        params.n_ctx, params.n_parallel = CONTEXT, 1
        params.cpuparams.n_threads = len(os.sched_getaffinity(0))
        self.server = xllamacpp.Server(params)

    def predict(self, prompt, max_tokens):
        """Yield the answer to the prompt in parts. A caller that disconnects stops the generation."""
        if not 0 < max_tokens[0] <= CONTEXT:
            raise InputRefused(f"max_tokens must be 1 to {CONTEXT}")
        request = {
            "messages": [{"role": "user", "content": prompt[0].decode()}],
            "max_tokens": int(max_tokens[0]),
            "stream": True,
        }
        parts, stopped = queue.SimpleQueue(), threading.Event()

        def generate():
            try:
                self.server.handle_chat_completions(request, lambda part: (parts.put(part), stopped.is_set())[1])
            finally:
                parts.put(None)

        thread = threading.Thread(target=generate)
        thread.start()
        try:
            while (part := parts.get()) is not None:
                if "error" in part:
                    raise RuntimeError(part["error"])
                if text := part["choices"][0]["delta"].get("content"):
                    yield text
        finally:
            stopped.set()
            thread.join()
