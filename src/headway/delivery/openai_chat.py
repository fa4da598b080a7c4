"""Events to OpenAI's chat.completion and chat.completion.chunk."""

from typing import Any

from headway.core.events import TokenLogprobs
from headway.delivery.openai_format import ChunkStream, Head, TokenBytes, Totals, encode
from headway.delivery.openai_request import UsageOptions
from headway.serving.text_events import (
    AnswerDelta,
    CallStart,
    Content,
    Delta,
    Done,
    Part,
    Reasoning,
    Started,
    TextEvent,
)

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
        fields: dict[str, Any] = {}
        if not self._spoken[index]:
            self._spoken[index] = True
            fields["role"] = "assistant"
        fields |= answer_fields(delta) if isinstance(delta, AnswerDelta) else {"content": delta.text}
        logprobs = b"null"
        if delta.logprobs is not None:
            logprobs = encode(chat_logprobs(delta.token_ids, delta.logprobs, self._token_bytes))
        return b'"delta":%b,"logprobs":%b,"finish_reason":null' % (encode(fields), logprobs)

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
        self._parts: list[list[Part]] = [[] for _ in range(choices)]
        self._logprobs: list[list[dict[str, Any]] | None] = [None] * choices
        self._finish: list[str | None] = [None] * choices
        self._ids: list[list[int]] | None = [[] for _ in range(choices)] if token_ids else None
        self._prompt: list[int] = []

    def add(self, index: int, event: TextEvent) -> None:
        if isinstance(event, Delta):
            self._texts[index].append(event.text)
            if self._ids is not None:
                self._ids[index] += event.token_ids
            if isinstance(event, AnswerDelta):
                self._parts[index] += event.parts
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
                "message": whole_message("".join(texts), parts),
                "logprobs": None if logprobs is None else {"content": logprobs, "refusal": None},
                "finish_reason": finish,
            }
            for index, (texts, parts, logprobs, finish) in enumerate(
                zip(self._texts, self._parts, self._logprobs, self._finish, strict=True)
            )
        ]
        body = {**self._head.fields(), "choices": choices, "usage": self._totals.fields()}
        if self._ids is not None:
            body["prompt_token_ids"] = self._prompt
            for choice, ids in zip(choices, self._ids, strict=True):
                choice["token_ids"] = ids
        return encode(body)


def answer_fields(delta: AnswerDelta) -> dict[str, Any]:
    """A chunk's `delta`. The chunk in which a call begins has its id, type and name; its arguments come as they do."""
    fields: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    for part in delta.parts:
        if isinstance(part, Content | Reasoning):
            field = "content" if isinstance(part, Content) else "reasoning_content"
            fields[field] = fields.get(field, "") + part.text
        elif isinstance(part, CallStart):
            function = {"name": part.name, "arguments": ""}
            calls.append({"index": part.index, "id": part.id, "type": "function", "function": function})
        elif calls and calls[-1]["index"] == part.index:
            calls[-1]["function"]["arguments"] += part.text
        else:
            calls.append({"index": part.index, "function": {"arguments": part.text}})
    return {**fields, "tool_calls": calls} if calls else fields


def whole_message(content: str, parts: list[Part]) -> dict[str, Any]:
    """A choice's message. `content` is null where there are calls or reasoning alone."""
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if not parts:
        return message
    fields = answer_fields(AnswerDelta("", [], parts=parts))
    message["content"] = content or None
    if "reasoning_content" in fields:
        message["reasoning_content"] = fields["reasoning_content"]
    if "tool_calls" in fields:
        message["tool_calls"] = [{key: call[key] for key in call if key != "index"} for call in fields["tool_calls"]]
    return message


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
