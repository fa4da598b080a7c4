"""Events to OpenAI's chat.completion and chat.completion.chunk."""

from typing import Any

from headway.core.events import TokenLogprobs
from headway.delivery.openai_format import ChunkStream, Head, TokenBytes, Totals, encode
from headway.delivery.openai_request import UsageOptions
from headway.serving.text_events import Delta, Done, Started, TextEvent

LEAST_LOGPROB = -9999.0  # OpenAI's stand-in for minus infinity, which JSON does not have


class ChatStream(ChunkStream):
    """The role comes in the chunk of the first text; finish_reason is null until each choice's one final chunk."""

    def __init__(
        self, head: Head, choices: int, usage: UsageOptions, token_bytes: TokenBytes, token_ids: bool = False
    ) -> None:
        super().__init__(head, choices, usage, token_ids)
        self._spoken = [False] * choices
        self._token_bytes = token_bytes
        self._prompt_shown = False
        self._plain = not usage.continuous and not token_ids
        # The common chunk: text of somebody who has spoken, without logprobs or usage.
        self._heads = [b'%b%d,"delta":{"content":' % (self._open, index) for index in range(choices)]
        self._tail = b'},"logprobs":null,"finish_reason":null}]' + self._close

    def event(self, index: int, event: TextEvent) -> bytes:
        if type(event) is Delta and event.logprobs is None and self._spoken[index] and self._plain:
            return self._heads[index] + encode(event.text) + self._tail
        data = super().event(index, event)
        if data and self._prompts:  # one prompt for all choices: a field of the chunk, as vLLM has it
            if not self._prompt_shown:
                data = data[:-3] + self._prompt_ids(next(iter(self._prompts))) + data[-3:]
                self._prompt_shown = True
            self._prompts.clear()
        return data

    def _choice_text(self, index: int, delta: Delta) -> bytes:
        role = b""
        if not self._spoken[index]:
            self._spoken[index] = True
            role = b'"role":"assistant",'
        logprobs = b"null"
        if delta.logprobs is not None:
            logprobs = encode(chat_logprobs(delta.token_ids, delta.logprobs, self._token_bytes))
        text = encode(delta.text)
        return b'"delta":{%b"content":%b},"logprobs":%b,"finish_reason":null' % (role, text, logprobs)

    def _choice_end(self, index: int, done: Done) -> bytes:
        # A generation without any text still has to say who speaks.
        delta = b"{}" if self._spoken[index] else b'{"role":"assistant","content":""}'
        return b'"delta":%b,"logprobs":null,"finish_reason":"%b"' % (delta, done.finish_reason.encode())


class ChatWhole:
    def __init__(self, head: Head, choices: int, token_bytes: TokenBytes, token_ids: bool = False) -> None:
        self._head = head
        self._totals = Totals(choices)
        self._token_bytes = token_bytes
        self._texts: list[list[str]] = [[] for _ in range(choices)]
        self._logprobs: list[list[dict[str, Any]] | None] = [None] * choices
        self._finish: list[str | None] = [None] * choices
        self._ids: list[list[int]] | None = [[] for _ in range(choices)] if token_ids else None
        self._prompt: list[int] = []

    def add(self, index: int, event: TextEvent) -> None:
        if isinstance(event, Delta):
            self._texts[index].append(event.text)
            if self._ids is not None:
                self._ids[index] += event.token_ids
            if event.logprobs is not None:
                entries = chat_logprobs(event.token_ids, event.logprobs, self._token_bytes)["content"]
                self._logprobs[index] = so_far = self._logprobs[index] or []
                so_far += entries
        elif isinstance(event, Done):
            self._totals.done(index, event.usage)
            self._finish[index] = event.finish_reason
        elif isinstance(event, Started):
            self._totals.started(index, event)
            self._prompt = event.prompt.tolist() if self._ids is not None else []

    def body(self) -> bytes:
        choices: list[dict[str, Any]] = [
            {
                "index": index,
                "message": {"role": "assistant", "content": "".join(texts), "refusal": None},
                "logprobs": None if logprobs is None else {"content": logprobs, "refusal": None},
                "finish_reason": finish,
            }
            for index, (texts, logprobs, finish) in enumerate(
                zip(self._texts, self._logprobs, self._finish, strict=True)
            )
        ]
        body = {**self._head.fields(), "choices": choices, "usage": self._totals.fields()}
        if self._ids is not None:
            body["prompt_token_ids"] = self._prompt
            for choice, ids in zip(choices, self._ids, strict=True):
                choice["token_ids"] = ids
        return encode(body)


def chat_logprobs(ids: list[int], logprobs: list[TokenLogprobs], token_bytes: TokenBytes) -> dict[str, Any]:
    """OpenAI's `logprobs` object of a chat choice."""
    content = [
        {
            **_entry(token, entry.logprob, token_bytes),
            "top_logprobs": [_entry(other, logprob, token_bytes) for other, logprob in entry.top],
        }
        for token, entry in zip(ids, logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def _entry(token: int, logprob: float, token_bytes: TokenBytes) -> dict[str, Any]:
    data = token_bytes(token)
    return {"token": data.decode("utf-8", "replace"), "logprob": max(logprob, LEAST_LOGPROB), "bytes": list(data)}
