"""The path of a request between the wire and the engine: gate, tokenise, send, and text back."""

import asyncio
import contextlib
import secrets
from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headway.core.clock import Clock, MonotonicClock
from headway.core.config import Settings
from headway.core.errors import EngineUnavailable, HeadwayError, Overloaded
from headway.core.events import Load
from headway.core.request import EngineRequest
from headway.core.sampling import Sampling
from headway.model.detokenizer import Detokenizer
from headway.model.text import TextModel, load_text
from headway.observability.metrics import EngineState, Metrics
from headway.serving.answer_form import answer_form
from headway.serving.answer_parser import AnswerParser
from headway.serving.answer_stream import AnswerStream
from headway.serving.child import Absence
from headway.serving.emission_stream import EmissionStream
from headway.serving.engine_link import EngineLink
from headway.serving.form_check import FormCheck
from headway.serving.gate import Gate, Ticket
from headway.serving.generation import Generation
from headway.serving.live_settings import LiveSettings
from headway.serving.prompts import PromptEncoder
from headway.serving.request import ChatPrompt, Prompt, Request
from headway.serving.resolve import check_ids, resolve_sampling
from headway.serving.text_pool import TextPool
from headway.serving.text_stream import TextStream

MOST_TOKENIZING = 32 << 20  # characters that may wait for `tokenize`, beside a first text of any length
TOKENIZING_RETRY_S = 2.0  # tokenising does about 1 MB/s


class Frontend:
    """Everything an API worker does that is not HTTP."""

    def __init__(
        self,
        text: TextModel,
        settings: Settings,
        address: str,
        *,
        worker: int = 0,
        life: int = 0,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._text = text
        self._clock = clock or MonotonicClock()
        self.now = self._clock.now
        self.metrics = metrics or Metrics()
        self.worker = worker
        self._link = EngineLink(address, worker, self._clock, settings.server.stream_buffer, life)
        self._link.on_replay = self.metrics.replayed
        self._gate = Gate(self._link, settings)
        self._settings = LiveSettings(self._link, settings, self._gate.reconfigure)
        self._pool = TextPool(PromptEncoder(text))
        self._forms = FormCheck(text)
        self._live = 0
        self._tokenizing = 0  # characters
        self._idle = asyncio.Event()  # set when the last live generation has left while draining
        self.model_name = settings.server.model_name or text.name

    def start(self) -> None:
        """Connects to the engine; call on the event loop."""
        self._link.start()

    def close(self) -> None:
        self._link.close()
        self._pool.close()
        self._forms.close()

    # What delivery shows of the engine.

    @property
    def context(self) -> int:
        """Longest sequence, in tokens: the engine's once it is known, the model's before."""
        return self._link.engine.context if self._link.engine else self._text.context

    @property
    def capabilities(self) -> dict[str, bool]:
        """What the model can be asked for."""
        text = self._text
        return {
            "completions": True,
            "chat": text.chat_template.known,
            "tools": text.chat_template.known,
            "reasoning": text.answer_format.thinking is not None,
            "structured_output": True,
        }

    @property
    def fingerprint(self) -> str:
        return self._link.engine.fingerprint if self._link.engine else "loading"

    @property
    def load(self) -> Load | None:
        return self._link.load

    @property
    def live(self) -> int:
        """Generations that have not ended, from the gate on."""
        return self._live

    def trouble(self) -> str | None:
        """Why a request would be turned away with 503, or None while the server is ready."""
        return "the server is shutting down" if self._gate.draining else self._link.trouble()

    def engine_state(self) -> EngineState:
        """For the metrics."""
        link = self._link
        return EngineState(self.trouble() is None, link.restarts, link.breaker.state, link.breaker.openings)

    # Settings.

    @property
    def settings(self) -> Settings:
        """As they are now; a request reads them once."""
        return self._settings.current

    async def change_settings(self, changes: dict[str, Any]) -> Settings:
        """Has the engine take over `changes`; see `LiveSettings.change`."""
        return await self._settings.change(changes)

    # Generation.

    def generate(self, request: Request, leader: Generation | None = None) -> Generation:
        """Passes the gate and returns the generation, which is neither tokenised nor started yet.

        `leader`: another with the same prompt, which is started first. Raises Overloaded and EngineUnavailable at once.
        Close the result, whatever happens.
        """
        try:
            ticket = self._gate.admit(request, leader.ticket if leader else None)
        except HeadwayError as error:
            self.metrics.finished("unavailable" if isinstance(error, EngineUnavailable) else "refused", 0, 0)
            raise
        self._live += 1
        self.metrics.live(1)
        return Generation(self, request, ticket, self.metrics, leader)

    async def prepare(self, request: Request, prompt: "array[int] | None") -> "tuple[array[int], Sampling]":
        """For Generation: tokenises, where that has not been done, and finds out whether the form asked for can be
        kept."""
        if prompt is None:
            prompt = await self._pool.encode(request.prompt)
        request = self._with_answer_form(request, prompt)
        sampling = resolve_sampling(request, prompt, self.context, self._text.vocab_size)
        least = sampling.max_tokens if sampling.ignore_eos and not request.stop else sampling.min_tokens
        self._gate.check_possible(request, len(prompt), 1 if request.truncate else least)
        if request.form is not None:
            await self._forms.check(request.form, self.settings.limits)
        return prompt, sampling

    def _with_answer_form(self, request: Request, ids: "array[int]") -> Request:
        """Where tools must be called, or the model may reason, the form of the answer depends on the prompt's end."""
        prompt, format = request.prompt, self._text.answer_format
        if not isinstance(prompt, ChatPrompt) or (prompt.tools is None and request.form is None):
            return request
        form = answer_form(prompt.tools, request.form, format, self._text.end_of(ids), self.settings.limits)
        return replace(request, form=form)

    def send(
        self, request: Request, ticket: Ticket, prompt: "array[int]", sampling: Sampling, leader: int | None
    ) -> EmissionStream:
        """For Generation: gives it to the engine."""
        serial = self._link.next_serial()
        stream = self._link.open(serial, partial(_engine_request, request, ticket.booked, prompt, sampling, leader))
        self._gate.sent(ticket, serial, len(prompt) if leader is None else 0)
        return stream

    def text_stream(self, request: Request) -> TextStream:
        """For Generation: plain, or in parts where the model may reason or call tools."""
        logprobs = request.sampling.logprobs is not None
        prompt, format = request.prompt, self._text.answer_format
        if isinstance(prompt, ChatPrompt) and (prompt.tools is not None or format.thinking is not None):
            names = prompt.tools.names if prompt.tools is not None else frozenset[str]()
            single = prompt.tools is not None and not prompt.tools.parallel
            parser = AnswerParser(format, names, partial(_call_id, format.short_ids), single=single)
            return AnswerStream(self._text, parser, request.stop, logprobs)
        return TextStream(Detokenizer(self._text.tokenizer), request.stop, logprobs)

    def left(self, ticket: Ticket) -> None:
        """For Generation: it ended, in whatever way."""
        self._live -= 1
        self.metrics.live(-1)
        if not self._live and self._gate.draining:
            self._idle.set()
        if not ticket.serial:
            self._gate.release(ticket)

    # Text tools.

    async def tokenize(self, prompt: Prompt) -> "array[int]":
        """Token ids as array('I'). Raises Overloaded: no gate stands before this, and waiting texts take memory."""
        if self._tokenizing and self._tokenizing + prompt.size > MOST_TOKENIZING:
            raise Overloaded("too many texts wait to be tokenised", retry_after_s=TOKENIZING_RETRY_S)
        self._tokenizing += prompt.size
        try:
            return await self._pool.encode(prompt)
        finally:
            self._tokenizing -= prompt.size

    def token_text(self, token: int) -> bytes:
        """The bytes one token stands for."""
        return self._text.tokenizer.token_bytes(token)

    async def detokenize(self, ids: list[int]) -> str:
        """Raises InvalidRequest for ids that the model does not have."""
        check_ids(ids, self._text.vocab_size, "tokens")
        return await asyncio.to_thread(self._text.tokenizer.decode, ids)

    # Shutdown.

    async def drain(self, seconds: float) -> None:
        """Lets nothing new in, waits for what runs, and ends the rest with an error."""
        self._gate.draining = True
        if self._live:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)
        self._link.shut(EngineUnavailable("the server is shutting down", code="shutting_down"))

    def engine_away(self, absence: Absence) -> None:
        """The parent says that the engine has died and will be started again: whatever runs waits for that."""
        self._link.went(absence)

    def convicted(self, id: int, tell: Callable[[str], None]) -> None:
        """The parent says that engines die of this request; `tell` gets its fingerprint, for the other workers."""
        self._link.convict(id, tell)

    def poisoned(self, fingerprint: str, until: float) -> None:
        """The parent says what is refused until then."""
        self._link.poisoned(fingerprint, until)

    def engine_died(self, why: str) -> None:
        """The parent says that the engine is gone for good: whatever runs ends with an error now."""
        self._link.shut(EngineUnavailable(f"the engine has stopped: {why}"))


def _call_id(short: bool) -> str:
    return secrets.token_hex(5)[:9] if short else f"call_{secrets.token_hex(12)}"


def _engine_request(
    request: Request, booked: bool, prompt: "array[int]", sampling: Sampling, leader: int | None, id: int, epoch: int
) -> EngineRequest:
    return EngineRequest(
        id=id,
        epoch=epoch,
        prompt=prompt.tobytes(),
        sampling=sampling,
        arrival=request.arrival,
        deadline=request.deadline,
        truncate=request.truncate,
        lane=request.lane,
        tenant=request.tenant,
        weight=request.weight,
        booked=booked,
        leader=leader,
        salt=request.salt,
    )


def load_frontend(settings: Settings, address: str, worker: int, life: int, metrics_dir: Path | None) -> Frontend:
    """An API worker's frontend on the model of `settings`. Raises ModelError."""
    assert settings.model is not None, "the parent resolves the model"
    text = load_text(Path(settings.model))
    return Frontend(text, settings, address, worker=worker, life=life, metrics=Metrics(metrics_dir, worker))
