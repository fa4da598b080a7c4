"""The engine process's side of live settings: it owns them, and every worker hears from here what they are."""

import json
import logging
from collections import deque
from collections.abc import Callable

from pydantic import ValidationError

from headway.core.config import Settings, problems, with_changes
from headway.core.errors import HeadwayError, InvalidRequest
from headway.core.live_settings import differences, live_json
from headway.serving.child import RELOAD
from headway.serving.ipc import Outbound, Reconfigure, Reconfigured, SettingsChanged

log = logging.getLogger(__name__)

Send = Callable[[int, Outbound], bool]  # False: the worker does not read now
Apply = Callable[[Settings], None]


class SettingsHub:
    """Changes are merged, checked and applied one after the other, on the engine's thread between two steps."""

    def __init__(
        self, settings: Settings, epoch: int, send: Send, on_change: Callable[[str], None] = lambda settings: None
    ) -> None:
        """`on_change` gets the live settings as JSON: the next engine is to start with them."""
        self._on_change = on_change
        self.current = settings
        self._epoch = epoch
        self._send = send
        self._version = 0
        self._told: dict[int, int] = {}  # worker -> the version it was sent
        self._reloads: deque[str] = deque(maxlen=1)  # each is whole, so the newest is all that counts

    def command(self, line: str) -> None:
        """A line from the parent; any thread may call."""
        word, _, rest = line.partition(" ")
        if word == RELOAD:
            self._reloads.append(rest)

    def poll(self, apply: Apply) -> None:
        """Takes over what the parent has sent since."""
        if not self._reloads:
            return
        try:
            self._change(self._reloads.pop(), apply, "settings read again")
        except (HeadwayError, ValueError) as error:
            log.error("settings not changed: %s", _problem(error)[0])

    def answer(self, worker: int, message: Reconfigure, apply: Apply) -> None:
        """Takes over what a worker asks for, or tells it why not."""
        try:
            self._change(message.changes, apply, f"settings changed through API worker {worker}")
        except (HeadwayError, ValueError) as error:
            problem, param = _problem(error)
            self._send(worker, Reconfigured(token=message.token, problem=problem, param=param))
        else:
            self._send(worker, Reconfigured(token=message.token))

    def _change(self, changes: str, apply: Apply, what: str) -> None:
        """Raises HeadwayError and ValueError, and then nothing has changed."""
        after = with_changes(self.current, json.loads(changes))
        different = differences(self.current, after)
        if different:
            apply(after)
            self.current = after
            self._version += 1
            self._on_change(live_json(after))
            self.tell(list(self._told))
        log.info(
            "%s: %s", what, ", ".join(f"{name} {how}" for name, how in different.items()) or "nothing is different"
        )

    def greet(self, worker: int) -> None:
        """A worker has connected, or connected again."""
        self._told[worker] = -1
        self.tell([worker])

    def tell(self, workers: list[int]) -> None:
        """Sends the live settings to those who lack them; who does not read now hears of them at a later call."""
        message: SettingsChanged | None = None
        for worker in workers:
            if self._told.get(worker) == self._version:
                continue
            if message is None:
                message = SettingsChanged(epoch=self._epoch, version=self._version, settings=live_json(self.current))
            if self._send(worker, message):
                self._told[worker] = self._version


def _problem(error: Exception) -> tuple[str, str | None]:
    """What is wrong, and with which entry."""
    if isinstance(error, ValidationError):
        return "; ".join(problems(error)), ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
    if isinstance(error, InvalidRequest):
        return error.message, error.param
    return str(error), None
