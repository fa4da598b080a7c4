"""Makes responses, for whoever asks: by HTTP or through a WebSocket."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.responses import Response

from headway.core.config import ServerSettings
from headway.core.errors import InvalidRequest
from headway.delivery.caller import Caller, caller_of
from headway.delivery.deadline import timing_of
from headway.delivery.merge import Merged
from headway.delivery.recorded_reply import RecordedReply, RecordedWholeReply
from headway.delivery.recording import Recording, Terms
from headway.delivery.recordings import Recordings
from headway.delivery.reply import StreamReply, WholeReply
from headway.delivery.responses_compaction import PLEASE, SHARE, CompactionWhole
from headway.delivery.responses_events import ResponseEvents, ResponseObject
from headway.delivery.responses_items import Item, Message, chat_messages, input_items
from headway.delivery.responses_kept import KeptResponses
from headway.delivery.responses_request import fitted, in_own_words, response_head, serving_request
from headway.delivery.responses_schema import CompactRequest, InputFields, ResponseRequest
from headway.delivery.responses_store import Stored
from headway.delivery.stream_id import new_id
from headway.serving.frontend import Frontend
from headway.serving.generation import Generation
from headway.serving.request import Request as GenerationRequest

ROOM_SHARE = 4  # of the context, what truncation leaves for an answer of no stated length: 1/4
NOTHING: Mapping[str, list[Item]] = {}


@dataclass(frozen=True, slots=True)
class Begun:
    """A response that is about to be made."""

    caller: Caller
    items: list[Item]  # what it is made from
    generation: Generation
    events: ResponseEvents
    kept: bool
    background: bool


@dataclass(frozen=True, slots=True)
class Warmed:
    """A response without output, over as soon as it began: to go on from."""

    id: str
    items: list[Item]
    events: bytes
    kept: bool


class Responses:
    """Of one API worker."""

    def __init__(
        self, frontend: Frontend, recordings: Recordings, kept: KeptResponses, settings: ServerSettings
    ) -> None:
        self._frontend = frontend
        self._recordings = recordings
        self._kept = kept
        self._settings = settings

    async def create(self, request: HTTPConnection, body: ResponseRequest) -> Response:
        """Raises what the gate and the checks of the request do."""
        begun = await self.begin(request, body)
        if not begun.kept:
            if body.stream:
                return StreamReply([begun.generation], begun.events, self._settings)
            return WholeReply([begun.generation], begun.events)
        recording = await self.record(begun, early=bool(body.stream))
        if body.stream:
            return RecordedReply(self._recordings, recording, 0, self._settings)
        if begun.background:
            return Response(begun.events.snapshot(), media_type="application/json")
        return RecordedWholeReply(self._recordings, recording, begun.events)

    async def begin(
        self, request: HTTPConnection, body: ResponseRequest, recent: Mapping[str, list[Item]] = NOTHING
    ) -> Begun:
        """Past the gate, and known to be possible: a refusal is a status, whatever the request wants then.

        `recent`: conversations by the ids of their last responses, beside those that are kept.
        """
        kept = self._keeps(body)
        caller = caller_of(request)
        items = await self.context(body, caller, recent)
        asked = await self._asked(request, body, chat_messages(body.instructions, items), caller)
        generation = await self._prepared(asked)
        events = self._events(body, asked, kept)
        return Begun(caller, items, generation, events, kept, bool(body.background))

    async def warm(self, request: HTTPConnection, body: ResponseRequest, recent: Mapping[str, list[Item]]) -> Warmed:
        """As `begin`, for a response that shall have no output."""
        kept = self._keeps(body)
        caller = caller_of(request)
        items = await self.context(body, caller, recent)
        asked = await self._asked(request, body, chat_messages(body.instructions, items), caller)
        events = self._events(body, asked, kept)
        warmed = Warmed(events.response.id, items, events.nothing(), kept)
        if kept:
            sent = [event + b"\n\n" for event in warmed.events.split(b"\n\n")[:-1]]
            await self._kept.keep_whole(Stored(warmed.id, caller.key, events.snapshot(), items, sent))
        return warmed

    async def record(self, begun: Begun, early: bool) -> Recording:
        """Makes it, whoever reads. `early`: its id is told before it ends. Raises Overloaded."""
        merged = Merged([begun.generation])
        if begun.kept:
            return await self._kept.keep(begun.caller.key, merged, begun.events, begun.items, begun.background, early)
        id = begun.events.response.id
        return self._recordings.open(id, begun.caller.key, b"", merged, begun.events, Terms(ids=False))

    async def compact(self, request: HTTPConnection, body: CompactRequest) -> Response:
        """Has the model sum up a conversation, without its oldest turns where it is too long for the context."""
        caller = caller_of(request)
        items = await self.context(body, caller)
        most = self._frontend.context // SHARE
        wanted = ResponseRequest(max_output_tokens=most, service_tier=body.service_tier, truncation="auto")
        messages = [*chat_messages(body.instructions, items), PLEASE]
        generation = await self._prepared(await self._asked(request, wanted, messages, caller))
        return WholeReply([generation], CompactionWhole(items, self._frontend.worker))

    async def context(
        self, body: InputFields, caller: Caller, recent: Mapping[str, Sequence[Item]] = NOTHING
    ) -> list[Item]:
        """The items of the conversation that `body` continues, and its own. Raises InvalidRequest."""
        own = input_items(body.input, self._frontend.worker)
        previous = body.previous_response_id
        if previous is None:
            return own
        before = recent[previous] if previous in recent else await self._kept.history(previous, caller.key)
        return [*before, *own]

    def _keeps(self, body: ResponseRequest) -> bool:
        """Whether the response is stored. Raises InvalidRequest where it must be and cannot."""
        if body.stream_options is not None and not body.stream:
            raise InvalidRequest("stream_options needs stream: true", param="stream_options")
        if body.background and body.store is False:
            raise InvalidRequest("background needs store: true", param="background")
        for name, asked in (("store", body.store), ("background", body.background)):
            if asked and not self._kept.possible:
                raise InvalidRequest(f"{name}: this server stores no responses", param=name, code="store_unavailable")
        return body.store is not False and self._kept.possible

    def _events(self, body: ResponseRequest, asked: GenerationRequest, kept: bool) -> ResponseEvents:
        worker = self._frontend.worker
        head = response_head(body, self._frontend.model_name, asked, kept)
        response = ResponseObject(new_id("resp_", worker), head, "queued" if body.background else "in_progress")
        return ResponseEvents(response, worker, self._frontend.token_text)

    async def _asked(
        self, request: HTTPConnection, body: ResponseRequest, messages: list[Message], caller: Caller
    ) -> GenerationRequest:
        live = self._frontend.settings
        timing = timing_of(request, live.promise, body.timeout)
        if body.truncation == "auto":
            room = body.max_output_tokens or self._frontend.context // ROOM_SHARE
            messages = await fitted(self._frontend, body, messages, live.limits, caller, room)
        return serving_request(body, messages, live.limits, timing, caller)

    async def _prepared(self, asked: GenerationRequest) -> Generation:
        generation = self._frontend.generate(asked)
        try:
            with in_own_words():
                await generation.prepare()
        except BaseException:
            generation.close("refused")
            raise
        return generation
