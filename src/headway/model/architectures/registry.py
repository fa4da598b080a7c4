"""The families Headway computes."""

from headway.core.errors import ModelError
from headway.model.architectures.gemma import GEMMA2, GEMMA3
from headway.model.architectures.gpt_oss import GPT_OSS
from headway.model.architectures.granite import GRANITE
from headway.model.architectures.llama import LLAMA
from headway.model.architectures.olmo2 import OLMO2
from headway.model.architectures.phi3 import PHI3
from headway.model.architectures.qwen2 import QWEN2
from headway.model.architectures.qwen2_moe import QWEN2_MOE
from headway.model.architectures.qwen3 import QWEN3
from headway.model.architectures.qwen3_moe import QWEN3_MOE
from headway.model.architectures.smollm3 import SMOLLM3
from headway.model.spec import Architecture, Checkpoint

_FAMILIES = (LLAMA, QWEN2, QWEN3, PHI3, GRANITE, OLMO2, SMOLLM3, GEMMA2, GEMMA3, QWEN2_MOE, QWEN3_MOE, GPT_OSS)
_BY_NAME: dict[str, Architecture] = {name: family for family in _FAMILIES for name in family.names}


def architecture_of(checkpoint: Checkpoint) -> Architecture:
    """The family a checkpoint belongs to; ModelError, listing the supported ones, if it is none of them."""
    family = _BY_NAME.get(checkpoint.architecture)
    if family is None:
        supported = ", ".join(sorted(_BY_NAME))
        raise ModelError(
            f"model {checkpoint.path}: the architecture {checkpoint.architecture} is not supported ({supported} are)"
        )
    return family
