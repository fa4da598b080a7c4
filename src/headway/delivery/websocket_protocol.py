"""uvicorn's WebSockets with what they lack: an end for readers that take nothing."""

import asyncio

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from headway.delivery.connection_limits import limits_of
from headway.delivery.stall import Stall


class WebSocketProtocol(Stall, WebSocketsSansIOProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.limits = limits_of(config)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.linger()

    def on_task_complete(self, task: "asyncio.Task[None]") -> None:
        super().on_task_complete(task)
        self.linger()
