"""POST /v1/completions"""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.core.config import Settings
from headway.delivery.body import read_body
from headway.delivery.caller import caller_of
from headway.delivery.deadline import timing_of
from headway.delivery.openapi import STREAMS, takes
from headway.delivery.schemas import CompletionRequest
from headway.delivery.start import start_completion
from headway.delivery.streams import Streams
from headway.serving.frontend import Frontend

EXAMPLES: dict[str, dict[str, Any]] = {
    "whole": {"prompt": "The sky is", "max_tokens": 16},
    "several": {"prompt": ["One, two,", "Do, re,"], "n": 2, "max_tokens": 8, "seed": 1},
    "stream": {"prompt": "Once upon a time", "stream": True, "stream_options": {"include_usage": True}},
}


def completions_router(frontend: Frontend, settings: Settings, streams: Streams) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/completions", openapi_extra=takes(CompletionRequest, **EXAMPLES), responses=STREAMS)
    async def create_completion(request: Request) -> Response:
        """Continues one or several texts or lists of token ids, whole or as server-sent events."""
        if (answer := await streams.elsewhere(request)) is not None:
            return answer
        body = await read_body(request, CompletionRequest, settings.server.max_body_bytes)
        if (resumed := streams.resumed(request, body)) is not None:
            return resumed
        timing = timing_of(request, frontend.settings.promise, body.timeout)
        return streams.reply(request, body, await start_completion(frontend, body, timing, caller_of(request)))

    return router
