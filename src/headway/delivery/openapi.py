"""Request bodies in the OpenAPI document; the routes read them by hand, so FastAPI does not see them."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_REF = "#/components/schemas/{model}"
# For a route's `responses`: what it may answer with beside JSON.
STREAMS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}
TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {}}}}
STREAMS_OR_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}, "text/plain": {}}}}
_bodies: list[type[BaseModel]] = []


def takes(body: type[BaseModel], **examples: dict[str, Any]) -> dict[str, Any]:
    """For a route's `openapi_extra`: its body is `body`, for instance one of `examples`, by name."""
    if body not in _bodies:
        _bodies.append(body)
    schema = {"$ref": _REF.format(model=body.__name__)}
    shown = {name: {"value": example} for name, example in examples.items()}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": shown}}}}


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document with the schemas of all bodies."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        _, definitions = models_json_schema([(body, "validation") for body in _bodies], ref_template=_REF)
        document.setdefault("components", {}).setdefault("schemas", {}).update(definitions["$defs"])
        app.openapi_schema = document
    return app.openapi_schema
