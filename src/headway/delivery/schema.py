"""What all request bodies have in common: strictness, and fields that are not simply honoured."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_after_validator_function


class Schema(BaseModel):
    """Strict: no unknown field, no conversion between types, no number that JSON does not have."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


STATUS = "x-headway"  # in a field's JSON schema: what becomes of it, if it is not simply honoured


class Refuse:
    """Of a field that takes null and values that ask for nothing (`neutral`), and refuses the others."""

    def __init__(self, *neutral: object) -> None:
        self._neutral = neutral

    def _check(self, value: Any) -> Any:
        if value is None or any(value == n and type(value) is type(n) for n in self._neutral):
            return value
        raise PydanticCustomError("unsupported", "not supported yet")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        taken = " or ".join(json.dumps(value) for value in (None, *self._neutral))
        return {**handler(schema), STATUS: f"refused, but for {taken}"}


Refused = Annotated[Any, Refuse()]
RefusedFlag = Annotated[Any, Refuse(False)]
RefusedList = Annotated[Any, Refuse([])]
NO_EFFECT: Any = Field(None, json_schema_extra={STATUS: "accepted, without effect"})
