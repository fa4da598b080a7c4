"""One server: its calls, and what has been learned about it on the way."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from headway.client.deadline import Deadline
from headway.client.errors import APIStatusError, ClientError
from headway.client.transport import Call, Transport

CANCEL_S = 2.0
MODELS = "/models"
NO_LIST = (404, 405)  # of models: then there is one only
# What streams are asked for beside the caller's own stream_options, the most first.
_OFFERS: tuple[Mapping[str, bool], ...] = ({"resumable": True, "include_usage": True}, {"include_usage": True}, {})
_OURS = ("resumable", "include_usage", "stream_options")


class Server:
    """`model` None: the first that it lists."""

    def __init__(self, transport: Transport, model: str | None, resumable: bool) -> None:
        self.transport = transport
        self._model = model
        self._offer = 0 if resumable else 1  # the first of _OFFERS that has not been refused

    def deadline(self, seconds: float | None) -> Deadline:
        return Deadline(self.transport.timing.clock, seconds)

    async def models(self, deadline: Deadline) -> list[str]:
        body = await self.transport.fetch(Call("GET", MODELS), deadline)
        entries = body.get("data") if isinstance(body, dict) else None
        listed = entries if isinstance(entries, list) else []
        return [str(entry["id"]) for entry in listed if isinstance(entry, dict) and "id" in entry]

    async def with_model(self, body: dict[str, Any], deadline: Deadline) -> dict[str, Any]:
        """The body with the model's name in it, where there is one to be had."""
        if body.get("model") is not None:
            return body
        if self._model is None:
            try:
                self._model = next(iter(await self.models(deadline)), None)
            except APIStatusError as error:
                if error.status not in NO_LIST:
                    raise
        return body if self._model is None else {**body, "model": self._model}

    async def whole(self, path: str, body: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        """The answer to an unstreamed request."""
        call = Call("POST", path, msgspec.json.encode({**body, "stream": False}))
        answer: dict[str, Any] = await self.transport.fetch(call, deadline)
        return answer

    async def stream(self, path: str, body: Mapping[str, Any], deadline: Deadline, silence_s: float) -> httpx.Response:
        """The event stream that answers. A server that does not know our stream_options is asked without, from then on
        always."""
        own = body.get("stream_options") or {}
        for offer in range(self._offer, len(_OFFERS)):
            options = {**_OFFERS[offer], **own}
            content = {**body, "stream": True, "stream_options": options or None}
            if not options:
                del content["stream_options"]
            call = Call("POST", path, msgspec.json.encode(content), silence_s)
            try:
                response = await self.transport.open(call, deadline)
            except APIStatusError as error:
                if offer == len(_OFFERS) - 1 or not _refuses_ours(error):
                    raise
            else:
                self._offer = max(self._offer, offer)
                return response
        raise AssertionError("the last offer is accepted, or its refusal raised")

    async def resume(self, stream: str, after: int, deadline: Deadline, silence_s: float) -> httpx.Response:
        """The events after the `after`-th of a stream, and what is still to come."""
        path = f"/streams/{quote(stream, safe='')}?after={after}"
        call = Call("GET", path, silence_s=silence_s, guarded=False, tells_deadline=False)
        return await self.transport.open(call, deadline)

    async def cancel(self, stream: str) -> None:
        """Tells the server that nobody wants the rest of a stream; best effort."""
        call = Call("DELETE", f"/streams/{quote(stream, safe='')}", guarded=False, tells_deadline=False)
        with suppress(ClientError):
            await self.transport.tell(call, self.deadline(CANCEL_S))


def _refuses_ours(error: APIStatusError) -> bool:
    words = f"{error.param} {error.message}"
    return error.status in (400, 422) and any(word in words for word in _OURS)
