"""Ends work for a client that has gone away."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Runs `work` to its end, or cancels it when the client disconnects; False in that case.

    uvicorn drops what is sent to a closed connection without a word, so somebody has to listen.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
    if task.cancelled():
        return False
    task.result()
    return True


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
