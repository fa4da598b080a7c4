"""Mixtures of experts as checkpoints state them."""

from headway.model.fields import Fields
from headway.model.spec import Experts

MOST_EXPERTS = 4096  # no model comes near it, and a list is made of them
_SOFTMAX = 1  # llama.cpp's expert_gating_func


def checked(fields: Fields, experts: Experts) -> Experts:
    """ModelError unless each row can take as many experts as it should."""
    if not 0 < experts.active <= experts.count <= MOST_EXPERTS or not experts.ffn:
        raise fields.fail(f"{experts.active} of {experts.count} experts of width {experts.ffn} are impossible")
    return experts


def experts_of_gguf(fields: Fields, renormalise: bool, shared_gate: bool = False) -> tuple[Experts, int] | None:
    """The mixture, if there is one, and the width of the gated feed-forward beside it."""
    count = fields.integer("expert_count", 0)
    if count == 0:
        return None
    if fields.integer("expert_gating_func", _SOFTMAX) > _SOFTMAX:
        raise fields.fail("expert_gating_func: only softmax is supported")
    if fields.number("expert_weights_scale", 0) not in (0, 1):
        raise fields.fail("expert_weights_scale is not supported")
    active, ffn = fields.integer("expert_used_count"), fields.integer("feed_forward_length", 0)
    # Older files of Qwen2-MoE leave its experts' width to be computed.
    usual = ffn // max(active, 1) if shared_gate else ffn
    width = fields.integer("expert_feed_forward_length", 0) or usual
    shared = fields.integer("expert_shared_feed_forward_length", ffn) if shared_gate else 0
    return checked(fields, Experts(count, active, width, renormalise, shared_gate)), shared


def experts_of_qwen(config: Fields, shared_gate: bool) -> tuple[Experts, int]:
    """Qwen2-MoE's and Qwen3-MoE's, in every layer."""
    dense = config.numbers("mlp_only_layers") if "mlp_only_layers" in config else []
    if dense or config.integer("decoder_sparse_step", 1) != 1:
        raise config.fail("decoder_sparse_step, mlp_only_layers: layers without experts are not supported")
    # Newer transformers write num_experts as num_local_experts.
    count = config.integer("num_local_experts" if "num_local_experts" in config else "num_experts")
    active = config.integer("num_experts_per_tok")
    renormalise, width = config.flag("norm_topk_prob", False), config.integer("moe_intermediate_size")
    shared = config.integer("shared_expert_intermediate_size") if shared_gate else 0
    return checked(config, Experts(count, active, width, renormalise, shared_gate)), shared
