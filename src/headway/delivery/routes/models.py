"""GET /v1/models. Open without a key: load tools ask before they are given one."""

import time
from typing import Any

from fastapi import APIRouter

from headway.delivery.openai_request import check_model
from headway.serving.frontend import Frontend


def models_router(frontend: Frontend) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])
    created = int(time.time())

    def describe() -> dict[str, Any]:
        return {
            "id": frontend.model_name,
            "object": "model",
            "created": created,
            "owned_by": "headway",
            "max_model_len": frontend.context,  # as vLLM calls it
            "context_length": frontend.context,
            "capabilities": frontend.capabilities,
        }

    @router.head("/v1/models", include_in_schema=False)
    @router.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [describe()]}

    @router.head("/v1/models/{name:path}", include_in_schema=False)
    @router.get("/v1/models/{name:path}")
    async def get_model(name: str) -> dict[str, Any]:
        check_model(name, frontend.model_name)
        return describe()

    return router
