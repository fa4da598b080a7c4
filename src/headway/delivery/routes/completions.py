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
from headway.delivery.reply import StreamReply, WholeReply
from headway.delivery.schemas import CompletionRequest
from headway.serving.frontend import Frontend
from headway.serving.generation import Generation
from headway.serving.request import Request as GenerationRequest


def completions_router(frontend: Frontend, settings: Settings) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/completions", openapi_extra=takes(CompletionRequest))
    async def create_completion(request: Request) -> Response:
        """Continues one or several texts or lists of token ids, whole or as server-sent events."""
        body = await read_body(request, CompletionRequest, settings.server.max_body_bytes)
        check_model(body.model, frontend.model_name)
        usage = usage_options(body)
        live = frontend.settings
        timing = timing_of(request, live.promise, body.timeout)
        asked = completion_requests(body, live.limits, timing, caller_of(request))
        generations = start_all(frontend, asked)
        choices = len(generations)
        head = Head("cmpl", "text_completion", frontend.model_name, frontend.fingerprint)
        if body.stream:
            return StreamReply(
                generations, CompletionStream(head, choices, usage, frontend.token_text), settings.server
            )
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
