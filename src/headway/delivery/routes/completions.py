"""POST /v1/completions"""

from contextlib import ExitStack

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.core.config import Settings
from headway.delivery.body import read_body
from headway.delivery.caller import caller_of
from headway.delivery.deadline import timing_of
from headway.delivery.openai_completions import CompletionStream, CompletionWhole
from headway.delivery.openai_format import Head
from headway.delivery.openai_request import (
    check_model,
    completion_requests,
    usage_options,
)
from headway.delivery.openapi import takes
from headway.delivery.reply import WholeReply
from headway.delivery.schemas import CompletionRequest
from headway.delivery.streams import Streams
from headway.serving.frontend import Frontend
from headway.serving.generation import Generation
from headway.serving.request import Request as GenerationRequest


def completions_router(frontend: Frontend, settings: Settings, streams: Streams) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/completions", openapi_extra=takes(CompletionRequest))
    async def create_completion(request: Request) -> Response:
        """Continues one or several texts or lists of token ids, whole or as server-sent events."""
        if (answer := await streams.elsewhere(request)) is not None:
            return answer
        body = await read_body(request, CompletionRequest, settings.server.max_body_bytes)
        check_model(body.model, frontend.model_name)
        usage = usage_options(body)
        if (resumed := streams.resumed(request, body)) is not None:
            return resumed
        live = frontend.settings
        timing = timing_of(request, live.promise, body.timeout)
        asked = completion_requests(body, live.limits, timing, caller_of(request))
        generations = start_all(frontend, asked)
        choices = len(generations)
        head = Head("cmpl", "text_completion", frontend.model_name, frontend.fingerprint, frontend.worker)
        if body.stream:
            format = CompletionStream(head, choices, usage, frontend.token_text)
            return streams.reply(request, body, head.id, generations, format)
        return WholeReply(generations, CompletionWhole(head, choices, frontend.token_text))

    return router


def start_all(frontend: Frontend, requests: list[GenerationRequest]) -> list[Generation]:
    """All of them or, if the gate refuses one, none."""
    with ExitStack() as undo:
        generations = []
        for request in requests:
            generation = frontend.generate(request)
            undo.callback(generation.close, "refused")
            generations.append(generation)
        undo.pop_all()
    return generations
