"""/v1/responses: make, read, follow, cancel and delete responses, count their tokens, sum up conversations."""

from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from headway.core.config import Settings
from headway.core.errors import InvalidRequest
from headway.delivery.body import read_body
from headway.delivery.caller import caller_of
from headway.delivery.openai_request import check_model
from headway.delivery.openapi import STREAMS, takes
from headway.delivery.responses import Responses
from headway.delivery.responses_items import chat_messages, page
from headway.delivery.responses_kept import KeptResponses
from headway.delivery.responses_request import in_own_words, prompt_of
from headway.delivery.responses_schema import CompactRequest, Includable, InputTokensRequest, ResponseRequest
from headway.delivery.stream_id import LONGEST_AFTER
from headway.serving.frontend import Frontend

# What a response has of these it has anyway; only what is none of them is refused.
Include = Annotated[list[str] | None, Query(json_schema_extra={"items": {"enum": list(get_args(Includable))}})]
Bracketed = Annotated[
    list[str] | None, Query(alias="include[]", include_in_schema=False)
]  # as OpenAI's clients send it


def responses_router(frontend: Frontend, settings: Settings, responses: Responses, kept: KeptResponses) -> APIRouter:
    router = APIRouter(tags=["Responses"])
    limit = settings.server.max_body_bytes

    @router.post("/v1/responses", openapi_extra=takes(ResponseRequest), responses=STREAMS)
    async def create_response(request: Request) -> Response:
        """Answers a conversation: whole, as typed server-sent events, or in the background."""
        body = await read_body(request, ResponseRequest, limit)
        check_model(body.model, frontend.model_name)
        return await responses.create(request, body)

    @router.post("/v1/responses/input_tokens", openapi_extra=takes(InputTokensRequest))
    async def count_input_tokens(request: Request) -> dict[str, Any]:
        """How many tokens the prompt of such a response would have."""
        body = await read_body(request, InputTokensRequest, limit)
        check_model(body.model, frontend.model_name)
        caller = caller_of(request)
        messages = chat_messages(body.instructions, await responses.context(body, caller))
        prompt = prompt_of(body, messages, frontend.settings.limits, caller)
        with in_own_words():
            tokens = await frontend.tokenize(prompt)
        return {"object": "response.input_tokens", "input_tokens": len(tokens)}

    @router.post("/v1/responses/compact", openapi_extra=takes(CompactRequest))
    async def compact_conversation(request: Request) -> Response:
        """Sums up a conversation; the items that come back stand for it as the input of the next response."""
        body = await read_body(request, CompactRequest, limit)
        check_model(body.model, frontend.model_name)
        return await responses.compact(request, body)

    @router.get("/v1/responses/{id}", responses=STREAMS)
    async def get_response(
        request: Request,
        id: str,
        stream: bool = False,
        starting_after: Annotated[int | None, Query(ge=0, le=LONGEST_AFTER)] = None,
        include: Include = None,
        bracketed: Bracketed = None,
        include_obfuscation: bool = False,
    ) -> Response:
        """A stored response as it is now or, with `stream`, its events: all, or those after `starting_after`."""
        _check_include(include, bracketed)
        if include_obfuscation:
            raise InvalidRequest("include_obfuscation is not supported", param="include_obfuscation")
        if starting_after is not None and not stream:
            raise InvalidRequest("starting_after needs stream=true", param="starting_after")
        found = await kept.locate(request, id)
        if isinstance(found, Response):
            return found
        if stream:
            return kept.events(found, starting_after)
        return Response(found.response, media_type="application/json")

    @router.delete("/v1/responses/{id}")
    async def delete_response(request: Request, id: str) -> Response:
        """Forgets a response; one that is being made ends."""
        found = await kept.locate(request, id)
        if isinstance(found, Response):
            return found
        await kept.delete(found, id)
        return JSONResponse({"id": id, "object": "response", "deleted": True})

    @router.post("/v1/responses/{id}/cancel")
    async def cancel_response(request: Request, id: str) -> Response:
        """Ends a response that is being made; of one that has ended, what it has become."""
        found = await kept.locate(request, id)
        return found if isinstance(found, Response) else await kept.cancel(found)

    @router.get("/v1/responses/{id}/input_items")
    async def list_input_items(
        request: Request,
        id: str,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        order: Literal["asc", "desc"] = "desc",
        after: str | None = None,
        include: Include = None,
        bracketed: Bracketed = None,
    ) -> Response:
        """What a response was made from, with the items of the conversation that it went on with."""
        _check_include(include, bracketed)
        found = await kept.locate(request, id)
        if isinstance(found, Response):
            return found
        return JSONResponse(page(found.items, limit, order, after))

    return router


def _check_include(*given: list[str] | None) -> None:
    for name in (name for names in given for name in names or ()):
        if name not in get_args(Includable):
            raise InvalidRequest(f"include: {name[:50]!r} is not known", param="include")
