"""Finds out whether a form that a client asks for can be kept, before the engine hears of it."""

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from headway.core.config import LimitSettings
from headway.core.errors import HeadwayError, InvalidRequest
from headway.core.priority import yield_to_streams
from headway.model.grammar import Grammars
from headway.model.text import TextModel
from headway.serving.request import Form

MOST_VERDICTS = 256  # remembered, by the source


@dataclass(frozen=True, slots=True)
class Verdict:
    problem: str | None  # why it cannot be compiled
    cpu_s: float  # what finding out took


class FormCheck:
    """Compiles on a thread of its own, with the GIL released: a slow grammar delays no stream, no prompt, and of other
    requests only those whose form is new too."""

    def __init__(self, text: TextModel) -> None:
        self._text = text
        self._grammars: Grammars | None = None
        self._verdicts: OrderedDict[str, Verdict] = OrderedDict()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="form-check", initializer=yield_to_streams)

    async def check(self, form: Form, limits: LimitSettings) -> None:
        """Raises InvalidRequest for what cannot be compiled, or takes too long."""
        verdict = self._verdicts.get(form.source)
        if verdict is None:
            verdict = await asyncio.get_running_loop().run_in_executor(self._executor, self._judge, form.source)
        _answer(form, verdict, limits)

    def check_now(self, form: Form, limits: LimitSettings) -> None:
        """`check` for who has no event loop."""
        _answer(form, self._judge(form.source), limits)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _judge(self, source: str) -> Verdict:
        if source in self._verdicts:  # somebody before in the queue asked for the same
            return self._verdicts[source]
        problem, start = None, time.thread_time()
        try:
            if self._grammars is None:
                self._grammars = Grammars(self._text.tokenizer, self._text.vocab_size, self._text.end_ids)
                start = time.thread_time()
            self._grammars.check(source)
        except HeadwayError as error:
            problem = error.message
        verdict = self._verdicts[source] = Verdict(problem, time.thread_time() - start)
        while len(self._verdicts) > MOST_VERDICTS:
            self._verdicts.popitem(last=False)
        return verdict


def _answer(form: Form, verdict: Verdict, limits: LimitSettings) -> None:
    problem = verdict.problem
    if problem is None and verdict.cpu_s > limits.max_grammar_s:
        problem = f"too complex: it took {verdict.cpu_s:.1f} s to compile; {limits.max_grammar_s:g} s are allowed"
    if problem is not None:
        raise InvalidRequest(f"{form.param}: {problem}", param=form.param, code="unsupported_grammar")
