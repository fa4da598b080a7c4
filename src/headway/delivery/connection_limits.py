"""What a connection may take, of time and of places."""

from dataclasses import dataclass
from typing import Any, Self

import uvicorn

from headway.core.config import ServerSettings


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Of one API worker."""

    head_s: float
    body_s: float
    stall_s: float
    most: int  # connections open at once

    @classmethod
    def of(cls, server: ServerSettings, most: int | None = None) -> Self:
        """`most`: where fewer than the settings' are possible."""
        return cls(server.head_s, server.body_s, server.stall_s, server.max_connections if most is None else most)


class ServerConfig(uvicorn.Config):
    """uvicorn's, which is all that its protocols are given."""

    def __init__(self, app: Any, limits: ConnectionLimits, **options: Any) -> None:
        """`options` are uvicorn's."""
        super().__init__(app, **options)
        self.limits = limits


def limits_of(config: uvicorn.Config) -> ConnectionLimits:
    assert isinstance(config, ServerConfig)
    return config.limits
