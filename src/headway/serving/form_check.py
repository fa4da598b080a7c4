"""Finds out whether a form that a client asks for can be kept, before the engine hears of it."""

import asyncio
import os
import sys
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from headway.core.errors import HeadwayError, InvalidRequest
from headway.model.grammar import Grammars
from headway.model.text import TextModel
from headway.serving.request import Form

MOST_VERDICTS = 256  # remembered, by the source


class FormCheck:
    """Compiles on a thread of its own, with the GIL released: a slow grammar delays no stream, no prompt, and of other
    requests only those whose form is new too."""

    def __init__(self, text: TextModel) -> None:
        self._text = text
        self._grammars: Grammars | None = None
        self._verdicts: OrderedDict[str, str | None] = OrderedDict()  # what is wrong with it
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="form-check", initializer=_yield_to_streams)

    async def check(self, form: Form) -> None:
        """Raises InvalidRequest for what cannot be compiled."""
        if form.source in self._verdicts:
            problem = self._verdicts[form.source]
        else:
            problem = await asyncio.get_running_loop().run_in_executor(self._executor, self._judge, form.source)
        _answer(form, problem)

    def check_now(self, form: Form) -> None:
        """`check` for who has no event loop."""
        _answer(form, self._judge(form.source))

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _judge(self, source: str) -> str | None:
        """What is wrong with it."""
        if source in self._verdicts:  # somebody before in the queue asked for the same
            return self._verdicts[source]
        problem = None
        try:
            if self._grammars is None:
                self._grammars = Grammars(self._text.tokenizer, self._text.vocab_size, self._text.end_ids)
            self._grammars.compile(source)
        except HeadwayError as error:
            problem = error.message
        self._verdicts[source] = problem
        while len(self._verdicts) > MOST_VERDICTS:
            self._verdicts.popitem(last=False)
        return problem


def _answer(form: Form, problem: str | None) -> None:
    if problem is not None:
        raise InvalidRequest(f"{form.param}: {problem}", param=form.param, code="unsupported_grammar")


def _yield_to_streams() -> None:
    """Linux gives each thread its own niceness; elsewhere it would be the whole process's."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 5)
