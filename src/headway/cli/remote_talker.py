"""Talks with a server."""

import math
import sys
from collections.abc import Generator
from types import TracebackType
from typing import Any, Self

from headway.cli.talk import Messages
from headway.client import APIStatusError, Client, ClientError, Timing
from headway.core.errors import HeadwayError, InvalidRequest


class RemoteTalker:
    """`params`: of each request; None is left out. `model` None: the first that the server lists."""

    def __init__(self, url: str, api_key: str | None, model: str | None, params: dict[str, Any]) -> None:
        self._client = Client(url, api_key, model, timing=Timing(on_wait=_say))
        self._params = {name: value for name, value in params.items() if value is not None}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def stream(self, messages: Messages) -> Generator[str, None, None]:
        try:
            with self._client.stream(messages, **self._params) as pieces:
                yield from pieces
        except APIStatusError as error:
            raise _plain(error) from error


def _say(seconds: float, reason: ClientError) -> None:
    print(f"headway: {reason.message}; trying again in {_seconds(seconds)}", file=sys.stderr, flush=True)


def _plain(error: APIStatusError) -> HeadwayError:
    if error.status == 400:
        return InvalidRequest(error.message, param=error.param, code=error.code)
    if error.retry_after is not None:
        return HeadwayError(f"{error.message} (try again in {_seconds(error.retry_after)})", code=error.code)
    return error


def _seconds(seconds: float) -> str:
    return f"{max(1, math.ceil(seconds))} s"
