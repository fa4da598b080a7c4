"""POST /v1/completions"""

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.core.config import Settings
from headway.delivery.body import read_body
from headway.delivery.caller import caller_of
from headway.delivery.deadline import timing_of
from headway.delivery.openai_completions import Choices, CompletionStream, CompletionWhole
from headway.delivery.openai_format import Head
from headway.delivery.openai_request import (
    check_model,
    choices_made,
    completion_requests,
    usage_options,
)
from headway.delivery.openapi import takes
from headway.delivery.reply import WholeReply
from headway.delivery.schemas import CompletionRequest
from headway.delivery.start import start_all
from headway.delivery.streams import Streams
from headway.serving.frontend import Frontend
from headway.serving.request import Prompt, TextPrompt, TokenPrompt


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
        made, ids = choices_made(body), bool(body.return_token_ids)
        echo = [await _text(frontend, r.prompt) for r in asked[::made]] if body.echo else []
        choices = Choices(len(asked) // made, made, body.n or 1, echo)
        generations = start_all(frontend, asked, made)
        lane = asked[0].lane.label
        head = Head("cmpl", "text_completion", frontend.model_name, frontend.fingerprint, frontend.worker, lane)
        if body.stream:
            format = CompletionStream(head, choices, usage, frontend.token_text, ids)
            return streams.reply(request, body, head.id, generations, format)
        logprobs = body.logprobs is not None
        return WholeReply(generations, CompletionWhole(head, choices, frontend.token_text, logprobs, ids))

    return router


async def _text(frontend: Frontend, prompt: Prompt) -> str:
    """What a prompt looks like. Raises InvalidRequest for ids that the model does not have."""
    if isinstance(prompt, TextPrompt):
        return prompt.text
    assert isinstance(prompt, TokenPrompt)
    return await frontend.detokenize(prompt.ids)
