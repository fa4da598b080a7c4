"""What goes over the wire of a rig: each request, when it came, and how and when it was answered."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from headway.delivery import api_process


@dataclass
class Exchange:
    path: str
    came: float
    answered: float = 0.0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Tap:
    """`before` is called on a thread before each request to `path` is let through. Others are not looked at."""

    path: str
    before: Callable[[], None] = lambda: None
    seen: list[Exchange] = field(default_factory=list)

    def around(self, app: Any) -> Any:
        async def tapped(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http" or scope["path"] != self.path:
                await app(scope, receive, send)
                return
            exchange = Exchange(scope["path"], time.monotonic())
            self.seen.append(exchange)

            async def tell(message: Any) -> None:
                if message["type"] == "http.response.start":
                    exchange.status, exchange.answered = message["status"], time.monotonic()
                    exchange.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                await send(message)

            await asyncio.to_thread(self.before)
            await app(scope, receive, tell)

        return tapped


@contextmanager
def tapping(tap: Tap) -> Iterator[None]:
    """Rigs that are made meanwhile are tapped."""
    make = api_process.create_app
    with mock.patch.object(api_process, "create_app", lambda *given: tap.around(make(*given))):
        yield
