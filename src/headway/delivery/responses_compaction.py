"""Makes a conversation short: the model itself sums it up, and an item holds the summary."""

import time
from typing import Any

from headway.delivery.openai_format import encode
from headway.delivery.responses_events import usage_fields
from headway.delivery.responses_items import Item, Message, compaction
from headway.delivery.stream_id import new_id
from headway.serving.text_events import Delta, Done, TextEvent, Usage

SHARE = 8  # of the context, what a summary may have: 1/8
PLEASE: Message = {
    "role": "user",
    "content": "Sum up our conversation so far, so that you can go on with it from your summary alone: what I want, "
    "what I told you, what was found out and decided, and what is still to be done. Write nothing but the summary.",
}


class CompactionWhole:
    """OpenAI's response.compaction: what the model was told by system and developer, then the summary of the rest."""

    def __init__(self, items: list[Item], worker: int) -> None:
        self._told = [i for i in items if i["type"] == "message" and i["role"] in ("system", "developer")]
        self._worker = worker
        self._texts: list[str] = []
        self._usage = Usage(0, 0, 0)

    def add(self, index: int, event: TextEvent) -> None:
        if isinstance(event, Delta):
            self._texts.append(event.text)
        elif isinstance(event, Done):
            self._usage = event.usage

    def body(self) -> bytes:
        summary = compaction("".join(self._texts).strip(), new_id("cmp_", self._worker))
        fields: dict[str, Any] = {
            "id": new_id("resp_", self._worker),
            "object": "response.compaction",
            "created_at": int(time.time()),
            "output": [*self._told, summary],
            "usage": usage_fields(self._usage),
        }
        return encode(fields)
