"""A client library for any OpenAI-compatible server: see docs/client.md."""

from headway.client.answer import Answer, Chunk, Restarted, Usage
from headway.client.async_client import AsyncClient
from headway.client.errors import (
    APIStatusError,
    CircuitOpen,
    ClientError,
    ConnectionFailed,
    DeadlineExceeded,
    StreamDropped,
    StreamFailed,
)
from headway.client.retry import Retry
from headway.client.stream import AsyncStream, OnDrop
from headway.client.sync_client import Client, Stream
from headway.client.transport import Timing
from headway.core.breaker import CircuitBreaker

__all__ = [
    "APIStatusError",
    "Answer",
    "AsyncClient",
    "AsyncStream",
    "Chunk",
    "CircuitBreaker",
    "CircuitOpen",
    "Client",
    "ClientError",
    "ConnectionFailed",
    "DeadlineExceeded",
    "OnDrop",
    "Restarted",
    "Retry",
    "Stream",
    "StreamDropped",
    "StreamFailed",
    "Timing",
    "Usage",
]
