"""The ASGI application of one API worker."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from headway.core.config import Settings
from headway.core.errors import HeadwayError
from headway.delivery.arrival import Arrival
from headway.delivery.auth import make_auth
from headway.delivery.http_errors import (
    NoSuchRoute,
    as_headway_error,
    error_response,
    first_error,
)
from headway.delivery.openapi import describe
from headway.delivery.peers import Peers
from headway.delivery.recordings import Recordings
from headway.delivery.responses import Responses
from headway.delivery.responses_kept import KeptResponses
from headway.delivery.responses_store import ResponsesStore
from headway.delivery.routes.admin import admin_router
from headway.delivery.routes.chat import chat_router
from headway.delivery.routes.completions import completions_router
from headway.delivery.routes.generate import generate_router
from headway.delivery.routes.health import health_router
from headway.delivery.routes.metrics import metrics_router
from headway.delivery.routes.models import models_router
from headway.delivery.routes.responses import responses_router
from headway.delivery.routes.responses_socket import responses_socket_router
from headway.delivery.routes.stream_socket import stream_socket_router
from headway.delivery.routes.streams import streams_router
from headway.delivery.routes.tokenize import tokenize_router
from headway.delivery.streams import Streams
from headway.serving.frontend import Frontend

CLIENT_CLOSED = 499  # nginx's word for it; nobody is there to read it


def create_app(frontend: Frontend, settings: Settings, peers: Sequence[int] = ()) -> FastAPI:
    """Connects `frontend` to the engine when the application starts, and closes it when it ends. `peers`: the ports at
    which the API workers of this server reach each other."""
    recordings = Recordings(lambda: frontend.settings, frontend.metrics)
    others = Peers(peers, frontend.worker)
    streams = Streams(recordings, others, settings.server, frontend.metrics)
    store = ResponsesStore(settings.server)
    kept = KeptResponses(recordings, others, store, settings.server)
    responses = Responses(frontend, recordings, kept, settings.server)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        frontend.start()
        await store.open()
        try:
            yield
        finally:
            await kept.close()
            recordings.close()
            await store.close()
            await others.close()
            frontend.close()

    app = FastAPI(title="Headway", lifespan=lifespan, redirect_slashes=False)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    app.add_middleware(Arrival, now=frontend.now)
    auth = make_auth(lambda: frontend.settings)
    guarded = [Depends(auth)]
    for router in (
        chat_router(frontend, settings, streams),
        completions_router(frontend, settings, streams),
        responses_router(frontend, settings, responses, kept),
        streams_router(streams),
        tokenize_router(frontend, settings),
        generate_router(frontend, settings),
    ):
        app.include_router(router, dependencies=guarded)
    for router in (
        responses_socket_router(frontend, recordings, responses, auth),
        stream_socket_router(frontend, recordings, streams, auth),
        models_router(frontend),
        health_router(frontend),
        metrics_router(frontend),
        admin_router(frontend, settings),
    ):
        app.include_router(router)

    @app.head("/", include_in_schema=False)
    @app.get("/", tags=["Operations"])
    async def root() -> dict[str, Any]:
        """What there is."""
        return {"name": "Headway", "model": frontend.model_name, "endpoints": ["/docs", *app.openapi()["paths"]]}

    _add_error_handlers(app)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(HeadwayError)
    async def on_error(request: Request, error: HeadwayError) -> Response:
        return error_response(error)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        what = f"{request.method} {request.url.path[:200]}: {error.detail}"
        code = "method_not_allowed" if error.status_code == 405 else None
        response = error_response(NoSuchRoute(what, code=code))
        response.status_code = error.status_code
        response.headers.update(error.headers or {})  # Allow, with a 405
        return response

    @app.exception_handler(RequestValidationError)
    async def on_invalid_query(request: Request, error: RequestValidationError) -> Response:
        return error_response(first_error(error.errors()))

    @app.exception_handler(ValidationError)
    @app.exception_handler(Exception)
    async def on_unforeseen(request: Request, error: Exception) -> Response:
        return error_response(as_headway_error(error))

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_CLOSED)
