"""A Ray Serve application for tests: three deployments, of which one has many models, and the paths of callers."""

import asyncio
import os
from collections.abc import AsyncIterator

from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

SMALL = {"num_cpus": 0.1}


@serve.deployment(ray_actor_options=SMALL)
class Adder:
    def __call__(self, number: int) -> int:
        return number + 1


@serve.deployment(ray_actor_options=SMALL, max_ongoing_requests=10)
class Models:
    def __init__(self) -> None:
        self.loads = 0

    @serve.multiplexed(max_num_models_per_replica=2)  # type: ignore[untyped-decorator]
    async def model(self, name: str) -> str:
        self.loads += 1
        return f"{name}:{self.loads}"

    async def __call__(self) -> str:
        return str(await self.model(serve.get_multiplexed_model_id()))


@serve.deployment(ray_actor_options=SMALL, max_ongoing_requests=7)
class Paths:
    def __init__(self, adder: DeploymentHandle, models: DeploymentHandle) -> None:
        self.adder, self.models = adder, models

    async def __call__(self, request: Request) -> Response:
        path = request.url.path
        if path == "/add":  # through two calls, the first of which is not awaited
            return JSONResponse({"sum": await self.adder.remote(self.adder.remote((await request.json())["number"]))})
        if path == "/multiplexed":
            name = serve.get_multiplexed_model_id()
            return PlainTextResponse(await self.models.options(multiplexed_model_id=name).remote())
        if path == "/stream":
            return StreamingResponse(self.numbers(int(request.query_params["count"])), media_type="text/plain")
        if path == "/pid":
            return JSONResponse({"pid": os.getpid(), "key": os.environ.get("RAY_AUTH_TOKEN", "")})
        if path == "/sleep":
            await asyncio.sleep(float(request.query_params["seconds"]))
            return Response(status_code=204)
        if path == "/v2/models/own/infer":
            return JSONResponse({"outputs": []})
        body = await request.body()
        told = {"method": request.method, "path": str(request.url.path), "query": request.url.query,
                "headers": [list(header) for header in request.headers.items()], "body": body.hex()}  # fmt: skip
        return JSONResponse(told, 418, {"x-own": "1"})

    async def numbers(self, count: int) -> AsyncIterator[str]:
        for number in range(count):
            yield f"{number}\n"
            await asyncio.sleep(0.05)


adder, models = Adder.bind(), Models.bind()  # type: ignore[attr-defined]  # mypy ignores decorators of classes
app = Paths.bind(adder, models)  # type: ignore[attr-defined]
