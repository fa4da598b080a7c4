"""POST /v1/chat/completions"""

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.core.config import Settings
from headway.delivery.body import read_body
from headway.delivery.caller import caller_of
from headway.delivery.deadline import timing_of
from headway.delivery.openai_chat import ChatStream, ChatWhole
from headway.delivery.openai_format import Head
from headway.delivery.openai_request import chat_requests, check_model, usage_options
from headway.delivery.openapi import takes
from headway.delivery.reply import WholeReply
from headway.delivery.schemas import ChatRequest
from headway.delivery.start import start_all
from headway.delivery.streams import Streams
from headway.serving.frontend import Frontend


def chat_router(frontend: Frontend, settings: Settings, streams: Streams) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/chat/completions", openapi_extra=takes(ChatRequest))
    async def create_chat_completion(request: Request) -> Response:
        """Answers a conversation, whole or as server-sent events."""
        if (answer := await streams.elsewhere(request)) is not None:
            return answer
        body = await read_body(request, ChatRequest, settings.server.max_body_bytes)
        check_model(body.model, frontend.model_name)
        usage = usage_options(body)
        if (resumed := streams.resumed(request, body)) is not None:
            return resumed
        live = frontend.settings
        timing = timing_of(request, live.promise, body.timeout)
        asked = chat_requests(body, live.limits, timing, caller_of(request))
        choices, ids = len(asked), bool(body.return_token_ids)
        generations = start_all(frontend, asked, choices)
        kind = "chat.completion.chunk" if body.stream else "chat.completion"
        head = Head("chatcmpl", kind, frontend.model_name, frontend.fingerprint, frontend.worker, asked[0].lane.label)
        if body.stream:
            format = ChatStream(head, choices, usage, frontend.token_text, ids)
            return streams.reply(request, body, head.id, generations, format)
        return WholeReply(generations, ChatWhole(head, choices, frontend.token_text, ids))

    return router
