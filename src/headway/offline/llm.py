"""`LLM`: the engine in this process, without sockets. Same scheduler, same text, same tokens as the server."""

import sys
from array import array
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from headway.core.clock import MonotonicClock
from headway.core.config import LimitSettings, QueueSettings, Settings, load_settings
from headway.core.errors import HeadwayError, RequestFailed
from headway.core.events import Emission, Finish, Load, StepMessage, TokenLogprobs
from headway.core.request import Cancel, EngineRequest
from headway.core.runner import Runner
from headway.core.sampling import Sampling
from headway.model.detokenizer import Detokenizer
from headway.model.load import load_runner
from headway.model.source import resolve
from headway.model.text import load_text
from headway.model.tokenizer import Tokenizer
from headway.scheduling.engine import Engine
from headway.serving.form_check import FormCheck
from headway.serving.prompts import PromptEncoder
from headway.serving.request import ChatPrompt, Prompt, Request, TextPrompt, TokenPrompt
from headway.serving.resolve import resolve_sampling
from headway.serving.structured import structured_form
from headway.serving.text_events import Delta
from headway.serving.text_stream import TextStream

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """How to generate; defaults as in OpenAI's API. `max_tokens` None: what fits the context. `structured_outputs`:
    what the output must be, as on the wire: {"json": schema}, {"json_object": True}, {"regex": ...},
    {"choice": [...]} or {"grammar": Lark}."""

    max_tokens: int | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None  # None: random
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None
    structured_outputs: Mapping[str, Any] | None = None

    def request(self, prompt: Prompt, arrival: float, limits: LimitSettings) -> Request:
        """Raises InvalidRequest."""
        sampling = Sampling(
            max_tokens=0,  # `resolve_sampling` fills it in
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=tuple((self.logit_bias or {}).items()),
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            stop_token_ids=tuple(self.stop_token_ids),
            logprobs=self.logprobs,
        )
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        form = None
        if self.structured_outputs is not None:
            form = structured_form(self.structured_outputs, limits, "structured_outputs")
        return Request(
            prompt=prompt,
            sampling=sampling,
            arrival=arrival,
            max_tokens=self.max_tokens,
            seed=self.seed,
            stop=stop,
            form=form,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """What one prompt got. `token_ids` are those with text; `completion_tokens` also counts an end token."""

    text: str
    token_ids: list[int]
    finish_reason: Literal["stop", "length"]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    logprobs: list[TokenLogprobs] | None


class LLM:
    """One loaded model. Not for several threads at once. Closing frees the weights and the KV pool."""

    def __init__(
        self, model: str | None = None, *, settings: Settings | None = None, show_progress: bool = True
    ) -> None:
        """`model` as on the command line (None: the default model). Raises ModelError."""
        given = settings or load_settings(None, {})
        # The queue's bounds protect a server from its clients; here the caller waits for all of it anyway.
        unbounded = QueueSettings(max_requests=sys.maxsize, max_tokens=sys.maxsize)
        self._settings = given.model_copy(update={"queue": unbounded})
        path = resolve(model or self._settings.model, show_progress)
        self._text = load_text(path)
        self._prompts = PromptEncoder(self._text)
        self._forms = FormCheck(self._text)
        self._runner: Runner = load_runner(path, self._settings.engine)
        self._clock = MonotonicClock()
        self._engine = Engine(self._runner, self._settings, self._clock, epoch=0, publish=self._publish)
        self._engine.warm_up()
        self._serial = 0
        self._live: dict[int, _Running] = {}

    @property
    def tokenizer(self) -> Tokenizer:
        return self._text.tokenizer

    @property
    def runner(self) -> Runner:
        return self._runner

    def load(self) -> Load:
        """The engine's load and counters."""
        return self._engine.load()

    def close(self) -> None:
        self._runner.close()
        self._forms.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def generate(
        self,
        prompts: str | Sequence[str | Sequence[int]],
        params: Params | Sequence[Params] | None = None,
        *,
        show_progress: bool = True,
    ) -> list[Completion]:
        """Continues each prompt (text or token ids). Raises the HeadwayError of the first prompt that is refused."""
        given = [prompts] if isinstance(prompts, str) else prompts
        return self._complete([_prompt(p) for p in given], params, show_progress)

    def chat(
        self,
        conversations: Messages | Sequence[Messages],
        params: Params | Sequence[Params] | None = None,
        *,
        show_progress: bool = True,
    ) -> list[Completion]:
        """Answers one conversation (a list of messages) or several, by the model's chat template."""
        one = bool(conversations) and isinstance(conversations[0], Mapping)
        given = cast(Sequence[Messages], [conversations] if one else conversations)
        return self._complete([ChatPrompt([dict(m) for m in c]) for c in given], params, show_progress)

    def stream(self, prompt: str | Messages, params: Params | None = None) -> Generator[str, None, None]:
        """The text of one answer as it comes; a string is one user message. Closing the generator cancels."""
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
        running = self._start(ChatPrompt(messages), params or Params())
        try:
            while not running.done:
                self._engine.step()
                yield from running.take()
            running.check()
        except (GeneratorExit, KeyboardInterrupt):
            self._abandon()
            raise

    def _complete(
        self, prompts: list[Prompt], params: Params | Sequence[Params] | None, show_progress: bool
    ) -> list[Completion]:
        each = list(params) if isinstance(params, Sequence) else [params or Params()] * len(prompts)
        if len(each) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts but {len(each)} params")
        todo = deque(zip(prompts, each, strict=True))
        started: list[_Running] = []
        window = 2 * self._settings.engine.max_sequences  # enough to keep every seat taken
        with _progress(show_progress) as bar:
            task = bar.add_task("Generating", total=len(prompts))
            try:
                while todo or self._live:
                    while todo and len(self._live) < window:
                        started.append(self._start(*todo.popleft()))
                    self._engine.step()
                    bar.update(task, completed=len(started) - len(self._live))
            except (KeyboardInterrupt, HeadwayError):
                self._abandon()
                raise
        for running in started:
            running.check()
        return [running.completion() for running in started]

    def _start(self, prompt: Prompt, params: Params) -> "_Running":
        request = params.request(prompt, self._clock.now(), self._settings.limits)
        ids = self._prompts.encode([prompt])[0]
        if isinstance(ids, HeadwayError):
            raise ids
        sampling = resolve_sampling(request, ids, self._runner.info.context, self._text.vocab_size)
        if request.form is not None:
            self._forms.check_now(request.form, self._settings.limits)
        self._serial += 1
        stream = TextStream(Detokenizer(self._text.tokenizer), request.stop, sampling.logprobs is not None)
        running = self._live[self._serial] = _Running(self._serial, ids, stream)
        self._engine.submit(
            EngineRequest(id=self._serial, epoch=0, prompt=ids.tobytes(), sampling=sampling, arrival=request.arrival)
        )
        return running

    def _publish(self, worker: int, message: StepMessage) -> None:
        for emission in message.emissions:
            running = self._live.get(emission.id)
            if running is None:
                continue
            if running.push(emission):
                del self._live[emission.id]
                if emission.finish is None:
                    self._engine.submit(Cancel(id=emission.id, epoch=0, reason="stop"))

    def _abandon(self) -> None:
        for request in list(self._live):
            self._engine.submit(Cancel(id=request, epoch=0, reason="abandoned"))
        while self._engine.has_work:
            self._engine.step()


class _Running:
    """One generation under way."""

    def __init__(self, serial: int, prompt: "array[int]", stream: TextStream) -> None:
        self.id = serial
        self.done = False
        self._prompt_tokens = len(prompt)
        self._stream = stream
        self._deltas: list[Delta] = []
        self._taken = 0
        self._cached = 0
        self._finish: Finish | None = None
        self._detail = ""

    def push(self, emission: Emission) -> bool:
        """True once it has ended."""
        if emission.started:
            self._cached = emission.cached_tokens
        delta = self._stream.push(emission.tokens, emission.logprobs, emission.finish)
        if delta is not None:
            self._deltas.append(delta)
        if self._stream.stopped or emission.finish is not None:
            self.done = True
            self._finish = Finish.STOP if self._stream.stopped else emission.finish
            self._detail = emission.detail
        return self.done

    def take(self) -> Iterator[str]:
        while self._taken < len(self._deltas):
            self._taken += 1
            yield self._deltas[self._taken - 1].text

    def check(self) -> None:
        """Raises if it ended badly."""
        if self._finish not in (Finish.STOP, Finish.LENGTH):
            raise RequestFailed(self._detail or f"the generation ended as {self._finish}")

    def completion(self) -> Completion:
        probs = [p for d in self._deltas for p in d.logprobs or ()]
        return Completion(
            text="".join(d.text for d in self._deltas),
            token_ids=[i for d in self._deltas for i in d.token_ids],
            finish_reason="stop" if self._finish is Finish.STOP else "length",
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._stream.tokens,
            cached_tokens=self._cached,
            logprobs=probs or None,
        )


def _prompt(given: str | Sequence[int]) -> Prompt:
    return TextPrompt(given) if isinstance(given, str) else TokenPrompt(list(given))


def _progress(show: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not show)
