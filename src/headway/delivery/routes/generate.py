"""GET /generate: a stream for a browser's address bar or curl."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headway.core.config import Settings
from headway.core.errors import HeadwayError, InvalidRequest
from headway.core.sampling import Sampling
from headway.delivery.caller import caller_of
from headway.delivery.deadline import timing_of
from headway.delivery.http_errors import error_body
from headway.delivery.openai_format import DONE, encode
from headway.delivery.openai_request import SEED_MASK
from headway.delivery.reply import StreamReply
from headway.delivery.schemas import MOST, OnTimeout, ServiceTier, User
from headway.serving.frontend import Frontend
from headway.serving.request import Request as GenerationRequest
from headway.serving.request import TextPrompt
from headway.serving.text_events import Delta, Done, TextEvent


class GenerateQuery(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    prompt: str
    max_tokens: int = Field(128, ge=1, le=MOST)
    temperature: float = Field(1.0, ge=0, le=2)
    top_k: int = Field(0, ge=0, le=MOST)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    stop: str | None = Field(None, min_length=1, max_length=256)
    service_tier: ServiceTier = None
    user: User = None
    on_timeout: OnTimeout = None


class PlainText:
    """Nothing but the text."""

    media_type = "text/plain"
    keep_alive = b""

    def event(self, index: int, event: TextEvent) -> bytes:
        return event.text.encode() if isinstance(event, Delta) else b""

    def end(self) -> bytes:
        return b"\n"

    def failed(self, error: HeadwayError) -> bytes:
        return f"\n[error: {error.message}]\n".encode("utf-8", "replace")


class TextEvents:
    """Server-sent events {"text"}, at last {"finish_reason", "usage"}."""

    media_type = "text/event-stream"
    keep_alive = b": keep-alive\n\n"

    def event(self, index: int, event: TextEvent) -> bytes:
        if isinstance(event, Delta):
            return b'data: {"text":%b}\n\n' % encode(event.text)
        if isinstance(event, Done):
            usage = {"prompt_tokens": event.usage.prompt_tokens, "completion_tokens": event.usage.completion_tokens}
            return b"data: %b\n\n" % encode({"finish_reason": event.finish_reason, "usage": usage})
        return b""

    def end(self) -> bytes:
        return DONE

    def failed(self, error: HeadwayError) -> bytes:
        return b"data: " + error_body(error) + b"\n\n" + DONE


def generate_router(frontend: Frontend, settings: Settings) -> APIRouter:
    router = APIRouter(tags=["Simple"])

    @router.get("/generate")
    async def generate(request: Request, query: Annotated[GenerateQuery, Query()]) -> Response:
        """Continues a text, as server-sent events; as plain text with `Accept: text/plain`."""
        _no_name_twice([name for name, _ in request.query_params.multi_items()])
        sampling = Sampling(max_tokens=0, temperature=query.temperature, top_k=query.top_k, top_p=query.top_p)
        timing = timing_of(request, frontend.settings.promise)
        caller = caller_of(request)
        generation = frontend.generate(
            GenerationRequest(
                prompt=TextPrompt(query.prompt),
                sampling=sampling,
                arrival=timing.arrival,
                deadline=timing.deadline,
                max_tokens=query.max_tokens,
                seed=None if query.seed is None else query.seed & SEED_MASK,
                stop=() if query.stop is None else (query.stop,),
                truncate=query.on_timeout == "truncate",
                lane=caller.lane_for(query.service_tier),
                tenant=caller.tenant_for(query.user),
                weight=caller.weight,
                salt=caller.salt,
            )
        )
        plain = "text/plain" in request.headers.get("accept", "")
        return StreamReply([generation], PlainText() if plain else TextEvents(), settings.server)

    return router


def _no_name_twice(names: list[str]) -> None:
    """Raises InvalidRequest: of two values one would be silently ignored."""
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"{name} is given more than once", param=name)
