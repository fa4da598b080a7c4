"""What all request bodies have in common."""

from pydantic import BaseModel, ConfigDict


class Schema(BaseModel):
    """Strict: no unknown field, no conversion between types, no number that JSON does not have."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)
