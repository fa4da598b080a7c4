"""Events to OpenAI's text_completion, streamed and whole."""

from typing import Any

from headway.core.events import TokenLogprobs
from headway.delivery.openai_chat import LEAST_LOGPROB
from headway.delivery.openai_format import ChunkStream, Head, TokenBytes, Totals, encode
from headway.delivery.openai_request import UsageOptions
from headway.serving.text_events import Delta, Done, Started, TextEvent


class CompletionStream(ChunkStream):
    def __init__(self, head: Head, choices: int, usage: UsageOptions, token_bytes: TokenBytes) -> None:
        super().__init__(head, choices, usage)
        self._logprobs = [Logprobs(token_bytes) for _ in range(choices)]

    def _choice_text(self, index: int, delta: Delta) -> bytes:
        logprobs = b"null"
        if delta.logprobs is not None:
            logprobs = encode(self._logprobs[index].take(delta, delta.logprobs))
        return b'"text":%b,"logprobs":%b,"finish_reason":null' % (encode(delta.text), logprobs)

    def _choice_end(self, index: int, done: Done) -> bytes:
        return b'"text":"","logprobs":null,"finish_reason":"%b"' % done.finish_reason.encode()


class CompletionWhole:
    def __init__(self, head: Head, choices: int, token_bytes: TokenBytes) -> None:
        self._head = head
        self._totals = Totals(choices)
        self._texts: list[list[str]] = [[] for _ in range(choices)]
        self._builders = [Logprobs(token_bytes) for _ in range(choices)]
        self._logprobs: list[dict[str, list[Any]] | None] = [None] * choices
        self._finish: list[str | None] = [None] * choices

    def add(self, index: int, event: TextEvent) -> None:
        if isinstance(event, Delta):
            self._texts[index].append(event.text)
            if event.logprobs is not None:
                part = self._builders[index].take(event, event.logprobs)
                self._logprobs[index] = whole = self._logprobs[index] or {key: [] for key in part}
                for key, values in part.items():
                    whole[key] += values
        elif isinstance(event, Done):
            self._totals.done(index, event.usage)
            self._finish[index] = event.finish_reason
        elif isinstance(event, Started):
            self._totals.started(index, event)

    def body(self) -> bytes:
        choices = [
            {"index": index, "text": "".join(texts), "logprobs": logprobs, "finish_reason": finish}
            for index, (texts, logprobs, finish) in enumerate(
                zip(self._texts, self._logprobs, self._finish, strict=True)
            )
        ]
        return encode({**self._head.fields(), "choices": choices, "usage": self._totals.fields()})


class Logprobs:
    """OpenAI's `logprobs` object of a completion choice, piece by piece; text_offset counts characters."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes
        self._offset = 0

    def take(self, delta: Delta, logprobs: list[TokenLogprobs]) -> dict[str, list[Any]]:
        offset, self._offset = self._offset, self._offset + len(delta.text)
        offsets = []
        for token in delta.token_ids:
            offsets.append(min(offset, self._offset))
            offset += len(self._token_bytes(token).decode("utf-8", "ignore"))
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
