"""GET /metrics"""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from headway.delivery.openapi import TEXT
from headway.serving.frontend import Frontend


def metrics_router(frontend: Frontend) -> APIRouter:
    router = APIRouter(tags=["Operations"])

    @router.head("/metrics", include_in_schema=False)
    @router.get("/metrics", responses=TEXT)
    async def metrics() -> Response:
        """All workers' counts and the engine's newest load, for Prometheus."""
        text = frontend.metrics.render(frontend.load, frontend.engine_state())
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})

    return router
