"""The families Headway computes."""

from headway.core.errors import ModelError
from headway.model.architectures.llama import LLAMA
from headway.model.architectures.qwen2 import QWEN2
from headway.model.architectures.qwen3 import QWEN3
from headway.model.spec import Architecture, Checkpoint

_BY_NAME: dict[str, Architecture] = {name: family for family in (LLAMA, QWEN2, QWEN3) for name in family.names}


def architecture_of(checkpoint: Checkpoint) -> Architecture:
    """The family a checkpoint belongs to; ModelError, listing the supported ones, if it is none of them."""
    family = _BY_NAME.get(checkpoint.architecture)
    if family is None:
        supported = ", ".join(sorted(_BY_NAME))
        raise ModelError(
            f"model {checkpoint.path}: the architecture {checkpoint.architecture} is not supported ({supported} are)"
        )
    return family
