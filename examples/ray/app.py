"""A composed application of Ray Serve: two deployments score a text, a third one has the paths that callers use.

    knodel deploy reviews --uri ./examples/ray --format ray
    curl -s http://127.0.0.1:8080/namespaces/default/models/reviews/score -H 'Content-Type: application/json' \
        -d '{"text": "a wonderful film"}'
"""

from collections.abc import AsyncIterator

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import StreamingResponse

api = FastAPI()
WORDS = {"wonderful": 2, "good": 1, "bad": -1, "terrible": -2}
SMALL = {"num_cpus": 0.2}  # of the CPUs of the replica, which all deployments share


@serve.deployment(ray_actor_options=SMALL)
class Tokenizer:
    """Splits a text into words."""

    def __call__(self, text: str) -> list[str]:
        return text.lower().split()


@serve.deployment(ray_actor_options=SMALL)
class Scorer:
    """Adds the scores of words."""

    def __call__(self, words: list[str]) -> int:
        return sum(WORDS.get(word, 0) for word in words)


@serve.deployment(ray_actor_options=SMALL, max_ongoing_requests=20)
@serve.ingress(api)
class Reviews:
    """Takes the requests."""

    def __init__(self, tokenizer: DeploymentHandle, scorer: DeploymentHandle) -> None:
        self._tokenizer, self._scorer = tokenizer, scorer

    @api.post("/score")
    async def score(self, request: Request) -> dict[str, int]:
        """Score a text. The words go from one deployment to the other without coming here."""
        words = self._tokenizer.remote((await request.json())["text"])
        return {"score": await self._scorer.remote(words)}

    @api.post("/words")
    async def words(self, request: Request) -> StreamingResponse:
        """Stream the score of each word."""

        async def lines(text: str) -> AsyncIterator[str]:
            for word in await self._tokenizer.remote(text):
                yield f"{word} {await self._scorer.remote([word])}\n"

        return StreamingResponse(lines((await request.json())["text"]), media_type="text/plain")


app = Reviews.bind(Tokenizer.bind(), Scorer.bind())
