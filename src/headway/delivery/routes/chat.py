"""POST /v1/chat/completions"""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.core.config import Settings
from headway.delivery.body import read_body
from headway.delivery.caller import caller_of
from headway.delivery.deadline import timing_of
from headway.delivery.openapi import STREAMS, takes
from headway.delivery.schemas import ChatRequest
from headway.delivery.start import start_chat
from headway.delivery.streams import Streams
from headway.serving.frontend import Frontend

USER = [{"role": "user", "content": "Why is the sky blue?"}]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {
    "name": "get_weather",
    "description": "Current weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "whole": {"messages": USER, "max_tokens": 100},
    "resumable_stream": {"messages": USER, "stream": True, "stream_options": {"resumable": True}},
    "structured": {
        "messages": [{"role": "user", "content": "Invent a person."}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}},
    },
    "tools": {
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "tools": [{"type": "function", "function": WEATHER}],
        "tool_choice": "required",
    },
    "in_the_background": {"messages": USER, "service_tier": "flex", "timeout": 600},
}


def chat_router(frontend: Frontend, settings: Settings, streams: Streams) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/chat/completions", openapi_extra=takes(ChatRequest, **EXAMPLES), responses=STREAMS)
    async def create_chat_completion(request: Request) -> Response:
        """Answers a conversation, whole or as server-sent events."""
        if (answer := await streams.elsewhere(request)) is not None:
            return answer
        body = await read_body(request, ChatRequest, settings.server.max_body_bytes)
        if (resumed := streams.resumed(request, body)) is not None:
            return resumed
        timing = timing_of(request, frontend.settings.promise, body.timeout)
        return streams.reply(request, body, await start_chat(frontend, body, timing, caller_of(request)))

    return router
