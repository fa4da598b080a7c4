"""From emitted tokens to the parts of an answer, where a model may reason or call tools."""

from array import array
from collections.abc import Sequence

from headway.core.events import Finish, TokenLogprobs
from headway.model.detokenizer import Detokenizer
from headway.model.text import TextModel
from headway.serving.answer_parser import AnswerParser
from headway.serving.stop_strings import StopStrings
from headway.serving.text_events import AnswerDelta, Content, Delta, Part
from headway.serving.text_stream import TextStream


class AnswerStream(TextStream):
    """A TextStream whose Deltas are AnswerDeltas. Stop strings apply to content alone: neither reasoning nor a call is
    ever cut. Logprobs are those of every token of the answer, marks included, except of a stop string."""

    def __init__(
        self,
        text: TextModel,
        parser: AnswerParser,
        stops: Sequence[str] = (),
        logprobs: bool = False,
    ) -> None:
        super().__init__(Detokenizer(text.answer_tokenizer), (), logprobs)
        self._text_model = text
        self._parser = parser
        self._stop_texts = tuple(stops)
        self._content_stops = StopStrings(stops) if stops else None
        self._held = ""  # content that may begin a stop string
        self._undecided = 0  # tokens that turn out to be of the reasoning if there is any
        self._kept_ids: list[int] = []  # not yet in a delta
        self._kept_logprobs: list[TokenLogprobs] = []

    def begin(self, prompt: "array[int]") -> None:
        if self._text_model.answer_format.opens_reasoning(self._text_model.end_of(prompt)):
            self._parser.begin_in_reasoning()

    def push(
        self,
        tokens: Sequence[int],
        logprobs: Sequence[TokenLogprobs] | None = None,
        finish: Finish | None = None,
    ) -> AnswerDelta | None:
        parts: list[Part] = []
        for i, token in enumerate(tokens):
            last = finish if i == len(tokens) - 1 else None
            self._push_token(token, logprobs[i : i + 1] if logprobs else None, last, parts)
            if self.stopped:
                break
        if finish is not None and not self.stopped:
            if not tokens:
                self._parse(super().push((), None, finish), parts)
            self._add(self._parser.finish(), parts)
            self._release_content(parts)
        self.called = self._parser.called
        return self._delta(parts, final=finish is not None and not self.stopped)

    def _push_token(
        self, token: int, logprobs: Sequence[TokenLogprobs] | None, finish: Finish | None, parts: list[Part]
    ) -> None:
        reasoned = self._parser.in_reasoning
        self._parse(super().push((token,), logprobs, finish), parts)
        if reasoned or self._parser.in_reasoning:
            self.reasoning_tokens += 1 + self._undecided
            self._undecided = 0
        else:
            self._undecided = self._undecided + 1 if self._parser.undecided else 0

    def _parse(self, delta: Delta | None, parts: list[Part]) -> None:
        if delta is None:
            return
        self._kept_ids += delta.token_ids
        self._kept_logprobs += delta.logprobs or ()
        self._add(self._parser.push(delta.text), parts)
        self.stopped = self.stopped or self._parser.closed

    def _add(self, new: list[Part], parts: list[Part]) -> None:
        for part in new:
            if self._content_stops is None:
                parts.append(part)
            elif isinstance(part, Content):
                self._add_content(part.text, self._content_stops, parts)
            else:
                self._release_content(parts)
                parts.append(part)
            if self.stopped:
                return

    def _add_content(self, text: str, stops: StopStrings, parts: list[Part]) -> None:
        match = stops.push(text)
        self._held += text
        if match is not None:
            self.stopped = True
            self._held = self._held[: len(self._held) - (len(text) - match.after) - match.length]
            self._kept_ids, self._kept_logprobs = [], []
            self._release_content(parts)
            return
        free = len(self._held) - stops.held
        if free:
            parts.append(Content(self._held[:free]))
            self._held = self._held[free:]

    def _release_content(self, parts: list[Part]) -> None:
        """Something else follows: what is held begins no stop string."""
        if self._held:
            parts.append(Content(self._held))
            self._held = ""
        if self._content_stops is not None and not self.stopped:
            self._content_stops = StopStrings(self._stop_texts)

    def _delta(self, parts: list[Part], final: bool) -> AnswerDelta | None:
        if not parts and not (final and self._kept_logprobs):
            return None
        ids, self._kept_ids = self._kept_ids, []
        logprobs, self._kept_logprobs = self._kept_logprobs, []
        text = "".join([part.text for part in parts if isinstance(part, Content)])
        return AnswerDelta(text, ids, logprobs if self._want_logprobs else None, parts=parts)
