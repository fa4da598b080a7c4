"""gpt-oss: experts only, whose gates are clamped; sinks in the attention, biases everywhere, windows by turns."""

from headway.model.architectures.decoder import Decoder
from headway.model.architectures.family import Layout
from headway.model.architectures.gpt_oss_folder import with_usual_names
from headway.model.architectures.mixture import checked, experts_of_gguf
from headway.model.architectures.windows import by_turns, windows_by_type
from headway.model.fields import Fields
from headway.model.spec import Experts


def _windows(fields: Fields, layout: Layout, layers: int) -> tuple[int, ...]:
    if layout == "gguf":
        return by_turns(layers, 2, fields.integer("attention.sliding_window"))
    window = fields.integer("sliding_window", 0 if fields.states("sliding_window") else 128)
    return windows_by_type(fields, layers, window) if "layer_types" in fields else by_turns(layers, 2, window)


def _biases(config: Fields) -> tuple[str, ...]:
    attention = ("q", "k", "v", "o") if config.flag("attention_bias", True) else ()
    return (*attention, "router", "gate.", "up.", "down.")


def _experts(fields: Fields, layout: Layout) -> tuple[Experts, int] | None:
    # The softmax over the chosen ones alone is the one over all, brought to the sum of 1.
    if layout == "gguf":
        return experts_of_gguf(fields, renormalise=True)
    for name, usual in (("swiglu_limit", 7.0), ("swiglu_alpha", 1.702)):
        if fields.number(name, usual) != usual:
            raise fields.fail(f"{name} {fields.number(name)} is not supported ({usual} is)")
    count, active = fields.integer("num_local_experts", 128), fields.integer("num_experts_per_tok", 4)
    return checked(fields, Experts(count, active, fields.integer("intermediate_size"), True, shared_gate=False)), 0


GPT_OSS = Decoder(
    names=("gpt-oss", "gpt_oss"),
    view=with_usual_names,
    windows=_windows,
    biases=_biases,
    experts=_experts,
    gate="clamped_silu",
    sinks=True,
    yarn_rounds=False,
    gguf_names={"ffn_norm": "post_attention_norm"},
    hf_names={"router": "mlp.router"},
)
