"""POST /tokenize and /detokenize"""

import asyncio
from array import array
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from headway.core.config import Settings
from headway.core.errors import InvalidRequest
from headway.delivery.body import read_body
from headway.delivery.openai_format import encode
from headway.delivery.openai_request import check_model
from headway.delivery.openai_tools import chat_messages
from headway.delivery.openapi import takes
from headway.delivery.schemas import DetokenizeRequest, TokenizeRequest
from headway.serving.frontend import Frontend
from headway.serving.request import ChatPrompt, Prompt, TextPrompt

SLICE = 65_536  # ids written at once, in about a millisecond; millions at once would hold up every stream


def tokenize_router(frontend: Frontend, settings: Settings) -> APIRouter:
    router = APIRouter(tags=["Tokens"])
    limit = settings.server.max_body_bytes

    @router.post(
        "/tokenize",
        openapi_extra=takes(
            TokenizeRequest, text={"prompt": "The sky is"}, chat={"messages": [{"role": "user", "content": "Hi"}]}
        ),
    )
    async def tokenize(request: Request) -> Response:
        """The token ids of a prompt, or of messages after the chat template."""
        body = await read_body(request, TokenizeRequest, limit)
        check_model(body.model, frontend.model_name)
        if (body.prompt is None) == (not body.messages):
            raise InvalidRequest("send either prompt or messages", param="prompt")
        prompt: Prompt
        if body.prompt is None:
            prompt = ChatPrompt(chat_messages(body.messages))
        else:
            prompt = TextPrompt(body.prompt, body.add_special_tokens)
        tokens = await frontend.tokenize(prompt)
        head = b'{"count":%d,"max_model_len":%d,"tokens":[' % (len(tokens), frontend.context)
        return Response(b"%b%b]}" % (head, await _encode_ids(tokens)), media_type="application/json")

    @router.post("/detokenize", openapi_extra=takes(DetokenizeRequest, ids={"tokens": [101, 102, 103]}))
    async def detokenize(request: Request) -> dict[str, Any]:
        """The text of token ids."""
        body = await read_body(request, DetokenizeRequest, limit)
        check_model(body.model, frontend.model_name)
        return {"prompt": await frontend.detokenize(body.tokens)}

    return router


async def _encode_ids(ids: "array[int]") -> bytes:
    """The inside of a JSON list."""
    parts = []
    for start in range(0, len(ids), SLICE):
        parts.append(encode(ids[start : start + SLICE].tolist())[1:-1])
        await asyncio.sleep(0)
    return b",".join(parts)
