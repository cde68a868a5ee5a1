"""The layers of the causal autoencoder: nothing looks ahead, and norms may stay in float32."""

from __future__ import annotations

import torch
from small_nets import clip
from torch import nn

from mezzotint.compat.open_sora_plan.nets._causal_layers import Norm
from mezzotint.compat.open_sora_plan.nets.causal_vae import CausalVAE


def test_latents_do_not_look_ahead(network: CausalVAE) -> None:
    """But for the statistics of its norms, which are those of the whole clip, and are held here."""
    norms = [module for module in network.modules() if isinstance(module, Norm)]
    held = [norm.register_forward_hook(lambda _, inputs, __: inputs[0].clone()) for norm in norms]
    whole, later = clip(13), clip(13)
    later[:, :, 9:] = 0
    encoded, other = network.encode(whole), network.encode(later)
    for hook in held:
        hook.remove()
    assert torch.equal(encoded[:, :, :3], other[:, :, :3])
    assert not torch.equal(encoded[:, :, 3], other[:, :, 3])


def test_norms_can_stay_in_float32(network: CausalVAE) -> None:
    norm = Norm(32).bfloat16()
    x = torch.randn(2, 32, 3, 4, 4, generator=torch.Generator().manual_seed(0)).bfloat16() * 30 + 200
    plain = norm(x)
    network.keep_norms_in_float32()
    assert all(m.in_float32 for m in network.modules() if isinstance(m, Norm))
    norm.in_float32 = True
    wide = norm(x)
    assert wide.dtype == plain.dtype == torch.bfloat16
    exact = nn.functional.group_norm(x.double(), 32, eps=1e-6)
    assert (wide - exact).abs().max() <= (plain - exact).abs().max()
    torch.testing.assert_close(wide, exact.bfloat16(), rtol=0.01, atol=0.01)
