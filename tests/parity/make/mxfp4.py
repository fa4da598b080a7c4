"""Experts as 4-bit floats, in the layout of OpenAI's gpt-oss folders: bytes of two neighbours, and scales apart."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
BLOCK = 32


def blocks_and_scales(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks [..., columns / 32, 16] and scales [..., columns / 32] nearest to `weights` [..., columns]."""
    groups = weights.float().unflatten(-1, (-1, BLOCK))
    exponents = torch.floor(torch.log2(groups.abs().amax(-1))) - 2  # the greatest becomes 4 to 8, and 6 at most
    codes = (groups / torch.exp2(exponents)[..., None])[..., None].sub(VALUES).abs().argmin(-1).to(torch.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, (exponents + 127).to(torch.uint8)


def values(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """What they stand for, [..., columns]."""
    codes = torch.stack((blocks & 15, blocks >> 4), -1).flatten(-2).int()
    return (VALUES[codes] * torch.exp2(scales.float() - 127)[..., None]).flatten(-2)


def rewrite(folder: Path) -> None:
    """Stores the experts of the model in `folder`, whose weights have such values, as blocks and scales."""
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if name.endswith((".gate_up_proj", ".down_proj")):
            weights = tensor.swapaxes(1, 2)
            blocks, scales = blocks_and_scales(weights)
            assert torch.equal(values(blocks, scales), weights.float())
            tensors |= {f"{name}_blocks": blocks.contiguous(), f"{name}_scales": scales.contiguous()}
        else:
            tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"quantization_config": {"quant_method": "mxfp4"}}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
