"""The part of a server that its streams' readers see: answers made of the request alone, told to their end once begun,
with a journal from which they can be read again."""

import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

WORDS = ["alpha ", "be", "ta\n", "gamma, ", "\N{GRINNING FACE}", "delta ", "é", " ", "omega. "]


@dataclass
class Stub:
    """`resumable` False: a server that refuses what it does not know. `alike` False: it never says the same twice."""

    resumable: bool = True
    alike: bool = True
    url: str = ""
    port: int = 0
    cancelled: list[str] = field(default_factory=list)
    journal: dict[str, list[bytes]] = field(default_factory=dict)
    posts: int = 0

    def pieces(self, body: dict[str, Any]) -> list[str]:
        key = f"{body['messages']} {body.get('seed')} {'' if self.alike else self.posts}"
        chance = random.Random(key)
        return [chance.choice(WORDS) for _ in range(chance.randint(1, 80))]

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "stub"}]})

    async def chat(self, request: Request) -> Response:
        body = msgspec.json.decode(await request.body())
        self.posts += 1
        options = body.get("stream_options") or {}
        if not self.resumable and "resumable" in options:
            return _error(400, "unknown parameter: stream_options.resumable", "unknown_parameter")
        pieces, name = self.pieces(body), f"chatcmpl-{self.posts}-{random.randrange(10**9)}"
        usage = {"prompt_tokens": 3, "completion_tokens": len(pieces), "total_tokens": 3 + len(pieces)}
        if not body["stream"]:
            message = {"role": "assistant", "content": "".join(pieces)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            answer = {"id": name, "object": "chat.completion", "created": 0, "model": "stub", "choices": [choice]}
            return JSONResponse({**answer, "usage": usage})
        events = [*(_chunk(name, {"content": piece}) for piece in pieces), _chunk(name, {}, "stop")]
        if options.get("include_usage"):
            events.append(_data({**_head(name), "choices": [], "usage": usage}))
        events.append(b"data: [DONE]\n\n")
        if options.get("resumable"):
            events = [f"id: {name}-{n}\n".encode() + event for n, event in enumerate(events, 1)]
            self.journal[name] = events
        return _stream(events)

    async def replay(self, request: Request) -> Response:
        name, after = request.path_params["stream"], int(request.query_params["after"])
        if name not in self.journal:
            return _error(404, "no such stream", "stream_not_found")
        return _stream(self.journal[name][after:])

    async def cancel(self, request: Request) -> Response:
        name = request.path_params["stream"]
        if self.journal.pop(name, None) is None:
            return _error(404, "no such stream", "stream_not_found")
        self.cancelled.append(name)
        return Response(status_code=204)


def _head(name: str) -> dict[str, Any]:
    return {"id": name, "object": "chat.completion.chunk", "created": 0, "model": "stub"}


def _chunk(name: str, delta: dict[str, str], finish: str | None = None) -> bytes:
    return _data({**_head(name), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _data(chunk: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _error(status: int, message: str, code: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "x", "param": None, "code": code}}, status)


def _stream(events: list[bytes]) -> Response:
    async def body() -> AsyncIterator[bytes]:
        for event in events:
            yield event

    return StreamingResponse(body(), media_type="text/event-stream")


@contextmanager
def resume_stub(*, resumable: bool = True, alike: bool = True) -> Iterator[Stub]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = listener.getsockname()[1]
    stub = Stub(resumable, alike, f"http://127.0.0.1:{port}", port)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", stub.chat, methods=["POST"]),
            Route("/v1/streams/{stream}", stub.replay, methods=["GET"]),
            Route("/v1/streams/{stream}", stub.cancel, methods=["DELETE"]),
            Route("/v1/models", stub.models),
        ]
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listener],), name="stub")
    thread.start()
    try:
        end = time.monotonic() + 10
        while not server.started:
            assert time.monotonic() < end
            time.sleep(0.005)
        yield stub
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
