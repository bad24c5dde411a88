"""Ask a server with KServe's own clients.

    python kserve_client.py HTTP-URL GRPC-ADDRESS MODEL

Prints what they understood as JSON. The model is FP32 x [n] → y = 2x.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

VALUES = [1.0, 2.5]


def request(model: str, values: list[float], *, binary: bool, **more: Any) -> Any:
    """An InferRequest."""
    given = InferInput("x", [len(values)], "FP32")
    given.set_data_from_numpy(np.array(values, np.float32), binary_data=binary)
    return InferRequest(model, [given], **more)


def values_of(answer: Any) -> list[float]:
    """Of the first output."""
    found: list[float] = answer.outputs[0].as_numpy().tolist()
    return found


async def over_http(url: str, model: str) -> dict[str, Any]:
    """By the REST client, both protocols."""
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as v2, InferenceRESTClient() as v1:
        by_bytes = request(model, VALUES, binary=True, parameters={"binary_data_output": True}, request_id="seven")
        answered = await v2.infer(url, by_bytes, model_name=model)
        return {
            "live": await v2.is_server_live(url),
            "ready": await v2.is_server_ready(url),
            "model ready": await v2.is_model_ready(url, model),
            "another model ready": await v2.is_model_ready(url, "other"),
            "JSON": values_of(await v2.infer(url, request(model, VALUES, binary=False), model_name=model)),
            "bytes": values_of(answered),
            "id": answered.id,
            "model": answered.model_name,
            "v1": await v1.infer(url, {"instances": VALUES}, model_name=model),
            "v1 ready": await v1.is_model_ready(url, model),
            "refused": await refused(v2.infer(url, {"inputs": []}, model_name=model)),
        }


async def over_grpc(address: str, model: str) -> dict[str, Any]:
    """By the gRPC client."""
    async with InferenceGRPCClient(address) as client:
        typed = InferRequest(model, [InferInput("x", [len(VALUES)], "FP32", data=VALUES)])
        return {
            "live": await client.is_server_live(),
            "ready": await client.is_server_ready(),
            "model ready": await client.is_model_ready(model),
            "typed": values_of(await client.infer(typed)),
            "raw": values_of(await client.infer(request(model, VALUES, binary=True))),
            "refused": await refused(client.infer(request("other", VALUES, binary=True))),
        }


async def refused(call: Any) -> str:
    """The words of the error that a call ends with."""
    try:
        await call
    except Exception as error:
        return str(error)
    raise SystemExit("a wrong request was answered")


async def main(url: str, address: str, model: str) -> None:
    """Ask over both."""
    print(json.dumps({"http": await over_http(url, model), "grpc": await over_grpc(address, model)}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
