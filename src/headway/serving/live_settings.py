"""An API worker's side of live settings: the newest that the engine has told, and asking it for others."""

import asyncio
import itertools
import json
import logging
from collections.abc import Callable
from typing import Any

from headway.core.config import Settings, with_changes
from headway.core.errors import DeadlineExceeded, HeadwayError, InvalidRequest
from headway.serving.engine_link import EngineLink
from headway.serving.ipc import Reconfigured, SettingsChanged

log = logging.getLogger(__name__)

ANSWER_S = 5.0  # the engine answers between two steps


class LiveSettings:
    """`current` changes only when the engine says so; `on_change` hears of it."""

    def __init__(self, link: EngineLink, settings: Settings, on_change: Callable[[Settings], None]) -> None:
        self.current = settings
        self._link = link
        self._on_change = on_change
        self._tokens = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Reconfigured]] = {}
        link.on_settings = self._hear

    async def change(self, changes: dict[str, Any]) -> Settings:
        """Asks the engine; returns what holds in this worker from now on.

        Raises what `with_changes` raises, EngineUnavailable, and DeadlineExceeded where no answer comes.
        """
        with_changes(self.current, changes)  # says best what is wrong; the engine checks it against its newest
        token = next(self._tokens)
        self._asked[token] = answered = asyncio.get_running_loop().create_future()
        try:
            self._link.reconfigure(token, json.dumps(changes))
            answer = await asyncio.wait_for(answered, ANSWER_S)
        except TimeoutError:
            message = f"the engine has not answered within {ANSWER_S:g} s; the change may still come"
            raise DeadlineExceeded(message) from None
        finally:
            del self._asked[token]
        if answer.problem is not None:
            raise InvalidRequest(answer.problem, param=answer.param)
        return self.current

    def _hear(self, message: SettingsChanged | Reconfigured) -> None:
        if isinstance(message, Reconfigured):
            asked = self._asked.get(message.token)
            if asked is not None and not asked.done():
                asked.set_result(message)
            return
        try:
            settings = with_changes(self.current, json.loads(message.settings))
        except (HeadwayError, ValueError):  # the engine has checked it: a fault of ours, and no reason to fall silent
            log.exception("settings of version %d cannot be taken over", message.version)
            return
        if settings != self.current:
            self.current = settings
            self._on_change(settings)
