"""GET /health/live and /health/ready, which is /health too: load tools and proxies ask there, as of vLLM."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse

from headway.serving.frontend import Frontend


def health_router(frontend: Frontend) -> APIRouter:
    router = APIRouter(tags=["Operations"])

    @router.head("/health/live", include_in_schema=False)
    @router.get("/health/live")
    async def live() -> dict[str, Any]:
        """200 as long as this process answers at all."""
        return {"live": True}

    @router.head("/health", include_in_schema=False)
    @router.get("/health", include_in_schema=False)
    @router.head("/health/ready", include_in_schema=False)
    @router.get("/health/ready")
    async def ready() -> JSONResponse:
        """200 once the model has produced a token, while the engine's heartbeat is fresh; else 503 and the reasons."""
        trouble = frontend.trouble()
        reasons = [] if trouble is None else [trouble]
        return JSONResponse({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    return router
