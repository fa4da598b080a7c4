"""Events to OpenAI's text_completion, streamed and whole."""

from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.core.events import TokenLogprobs
from headway.delivery.openai_chat import LEAST_LOGPROB
from headway.delivery.openai_format import ChunkStream, Head, TokenBytes, Totals, encode
from headway.delivery.openai_request import UsageOptions
from headway.serving.text_events import Delta, Done, Started, TextEvent


@dataclass(frozen=True, slots=True)
class Choices:
    """Which of the answers that are made are shown, and what they begin with."""

    prompts: int
    made: int = 1  # for each prompt
    shown: int = 1  # of them, the best; all, if so many are made
    echo: Sequence[str] = ()  # each prompt's text, to begin with; empty: nothing

    @property
    def count(self) -> int:
        return self.prompts * self.made

    def opening(self, index: int) -> str:
        return self.echo[index // self.made] if self.echo else ""


class CompletionStream(ChunkStream):
    def __init__(
        self, head: Head, choices: Choices, usage: UsageOptions, token_bytes: TokenBytes, token_ids: bool = False
    ) -> None:
        super().__init__(head, choices.count, usage, token_ids)
        self._choices = choices
        self._logprobs = [Logprobs(token_bytes) for _ in range(choices.count)]

    def event(self, index: int, event: TextEvent) -> bytes:
        data = super().event(index, event)
        if isinstance(event, Started) and (opening := self._choices.opening(index)):
            return super().event(index, Delta(opening, []))
        return data

    def _choice_text(self, index: int, delta: Delta) -> bytes:
        logprobs = b"null"
        if delta.logprobs is not None:
            logprobs = encode(self._logprobs[index].take(delta, delta.logprobs))
        text = b'"text":%b,"logprobs":%b,"finish_reason":null' % (encode(delta.text), logprobs)
        return text + self._prompt_ids(index)

    def _choice_end(self, index: int, done: Done) -> bytes:
        return b'"text":"","logprobs":null,"finish_reason":"%b"' % done.finish_reason.encode() + self._prompt_ids(index)


@dataclass(slots=True)
class _Answer:
    """One choice as it grows."""

    texts: list[str]
    builder: "Logprobs"
    logprobs: dict[str, list[Any]] | None = None
    finish: str | None = None
    ids: list[int] = field(default_factory=list)
    prompt: list[int] = field(default_factory=list)
    log_sum: float = 0.0
    scored: int = 0  # tokens in `log_sum`

    @property
    def mean_logprob(self) -> float:
        return self.log_sum / self.scored if self.scored else 0.0


class CompletionWhole:
    def __init__(
        self, head: Head, choices: Choices, token_bytes: TokenBytes, logprobs: bool = True, token_ids: bool = False
    ) -> None:
        """`logprobs`: shown where there are any."""
        self._head = head
        self._choices = choices
        self._totals = Totals(choices.count)
        self._answers = [_Answer([choices.opening(i)], Logprobs(token_bytes)) for i in range(choices.count)]
        self._show_logprobs = logprobs
        self._token_ids = token_ids

    def add(self, index: int, event: TextEvent) -> None:
        answer = self._answers[index]
        if isinstance(event, Delta):
            answer.texts.append(event.text)
            answer.ids += event.token_ids
            if event.logprobs is not None:
                answer.log_sum += sum([entry.logprob for entry in event.logprobs])
                answer.scored += len(event.logprobs)
                part = answer.builder.take(event, event.logprobs)
                answer.logprobs = whole = answer.logprobs or {key: [] for key in part}
                for key, values in part.items():
                    whole[key] += values
        elif isinstance(event, Done):
            self._totals.done(index, event.usage)
            answer.finish = event.finish_reason
        elif isinstance(event, Started):
            self._totals.started(index, event)
            answer.prompt = event.prompt.tolist() if self._token_ids else []

    def body(self) -> bytes:
        made, shown = self._choices.made, self._choices.shown
        choices: list[dict[str, Any]] = []
        for first in range(0, self._choices.count, made):
            answers = self._answers[first : first + made]
            if made > shown:
                answers = sorted(answers, key=lambda a: -a.mean_logprob)[:shown]
            choices += [self._choice(len(choices) + i, answer) for i, answer in enumerate(answers)]
        return encode({**self._head.fields(), "choices": choices, "usage": self._totals.fields()})

    def _choice(self, index: int, answer: _Answer) -> dict[str, Any]:
        logprobs = answer.logprobs if self._show_logprobs else None
        choice = {"index": index, "text": "".join(answer.texts), "logprobs": logprobs, "finish_reason": answer.finish}
        if self._token_ids:
            choice |= {"prompt_token_ids": answer.prompt, "token_ids": answer.ids}
        return choice


class Logprobs:
    """OpenAI's `logprobs` object of a completion choice, piece by piece; text_offset counts characters."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes
        self._offset = 0

    def take(self, delta: Delta, logprobs: list[TokenLogprobs]) -> dict[str, list[Any]]:
        offset, self._offset = self._offset, self._offset + len(delta.text)
        offsets = []
        decoder = getincrementaldecoder("utf-8")("replace")  # a character comes with the last of its bytes
        for token in delta.token_ids:
            offsets.append(min(offset, self._offset))
            offset += len(decoder.decode(self._token_bytes(token)))
        tokens = [self._text(token) for token in delta.token_ids]
        return {
            "tokens": tokens,
            "token_logprobs": [max(entry.logprob, LEAST_LOGPROB) for entry in logprobs],
            "top_logprobs": [
                {self._text(other): max(logprob, LEAST_LOGPROB) for other, logprob in entry.top} for entry in logprobs
            ],
            "text_offset": offsets,
        }

    def _text(self, token: int) -> str:
        """The token's text; part of a character is shown as OpenAI shows it."""
        data = self._token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
