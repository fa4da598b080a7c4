"""GET and PATCH /admin/settings: the live settings, for those who have the admin key."""

import hmac
from typing import Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, ValidationError

from headway.core.config import Settings
from headway.core.errors import InvalidRequest, Unauthorized
from headway.core.live_settings import MASK, masked
from headway.delivery.auth import bearer
from headway.delivery.body import read_body
from headway.delivery.http_errors import validation_error
from headway.delivery.openapi import takes
from headway.serving.frontend import Frontend


class SettingsChanges(BaseModel):
    """Sections as in headway.toml, with the values to change: {"promise": {"itl_ms": 80}}; `keys` as a whole."""

    model_config = ConfigDict(extra="allow")


def admin_router(frontend: Frontend, settings: Settings) -> APIRouter:
    """Without routes where no admin key is set: then there is no /admin."""
    router = APIRouter(tags=["Operations"])
    if settings.server.admin_key is None:
        return router
    expected = settings.server.admin_key.encode()
    limit = settings.server.max_body_bytes

    async def check(request: Request) -> None:
        if not hmac.compare_digest(bearer(request), expected):  # in constant time, as in auth
            raise Unauthorized("this needs the admin key: Authorization: Bearer <key>")

    guarded = [Depends(check)]

    @router.get("/admin/settings", dependencies=guarded)
    async def get_settings() -> dict[str, Any]:
        """All settings as they are now, without their secrets."""
        return masked(frontend.settings)

    @router.patch("/admin/settings", dependencies=guarded, openapi_extra=takes(SettingsChanges))
    async def change_settings(request: Request) -> dict[str, Any]:
        """Changes settings at the engine's next step, in every worker; all of them or, if one is wrong, none."""
        body = await read_body(request, SettingsChanges, limit)
        changes = body.model_extra or {}
        _no_masks(changes.get("keys"))
        try:
            return masked(await frontend.change_settings(changes))
        except ValidationError as error:
            raise validation_error(error) from None

    return router


def _no_masks(keys: Any) -> None:
    """Raises InvalidRequest where what GET had shown comes back: it would make the mask the key."""
    for i, entry in enumerate(keys if isinstance(keys, list) else ()):
        if isinstance(entry, dict) and entry.get("key") == MASK:
            raise InvalidRequest(f"keys.{i}.key is masked: send the key itself", param=f"keys.{i}.key")
