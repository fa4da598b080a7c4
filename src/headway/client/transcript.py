"""What a stream has said so far."""

from collections.abc import Mapping
from typing import Any

from headway.client.answer import Chunk, Usage, choices_in, first_choice, reason_of, text_of, usage_of
from headway.client.errors import StreamFailed
from headway.client.shown import Shown


class Transcript:
    """Of `choices` answers side by side; text and ids are those of the first. Once `repeat`ed it expects to hear the
    same again, and only what is new counts."""

    def __init__(self, choices: int) -> None:
        self._choices = choices
        self.void()

    def void(self) -> None:
        """Nothing counts of what was said."""
        self._text: Shown[str] = Shown("")
        self._ids: Shown[list[int]] = Shown([])
        self._clear()

    def _clear(self) -> None:
        self._finished: set[int] = set()
        self.finish_reason: str | None = None
        self.usage: Usage | None = None

    @property
    def text(self) -> str:
        return self._text.all

    @property
    def finished(self) -> bool:
        """Every answer has its finish_reason."""
        return len(self._finished) >= self._choices

    @property
    def behind(self) -> bool:
        """What is being repeated was longer the first time."""
        return self._text.behind or self._ids.behind

    def take(self, chunk: Chunk, with_ids: bool) -> tuple[str, list[int]]:
        """The new text and ids. Raises Differs, and StreamFailed where there are no ids."""
        for choice in choices_in(chunk):
            if reason_of(choice):
                index = choice.get("index")
                self._finished.add(index if type(index) is int else 0)
        self.usage = usage_of(chunk) or self.usage
        first = first_choice(chunk)
        self.finish_reason = reason_of(first) or self.finish_reason
        ids = self._ids.take(_ids_of(first)) if with_ids else []
        return self._text.take(text_of(first)), ids

    def repeat(self) -> None:
        self._text.restart()
        self._ids.restart()
        self._clear()


def _ids_of(choice: Mapping[str, Any]) -> list[int]:
    ids = choice.get("token_ids")
    if ids is None and text_of(choice):
        raise StreamFailed("this server gives no token ids", code="no_token_ids")
    if ids is not None and not (isinstance(ids, list) and all(type(token) is int for token in ids)):
        raise StreamFailed("this server gives token ids that are none", code="no_token_ids")
    return ids or []


def choices_of(body: Mapping[str, Any]) -> int:
    """How many answers side by side a request asks for."""
    prompt = body.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
    return (body.get("n") or 1) * prompts
