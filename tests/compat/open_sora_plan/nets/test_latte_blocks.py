"""The blocks of LatteT2V: masked tokens have no effect, and compressed keys start as means."""

from __future__ import annotations

from dataclasses import replace

import torch
from small_nets import LATTE, inputs, tiny

from mezzotint.compat.open_sora_plan.nets.latte import Latte


def test_masked_tokens_and_patches_are_ignored() -> None:
    network, tensors = tiny(), inputs()
    text_mask = torch.tensor([[1, 1, 1, 1, 0, 0]] * 2)
    latent_mask = torch.ones(2, 3, 8, 8)
    latent_mask[:, :, 5:] = 0  # row 5 is in a patch with row 4, which is not masked
    other = {name: tensor.clone() for name, tensor in tensors.items()}
    other["text"][:, :, 4:] = 9.0
    other["latents"][:, :, :, 6:] = 9.0
    masks = {"text_mask": text_mask, "latent_mask": latent_mask}
    with torch.no_grad():
        output, again = network(**tensors, **masks), network(**other, **masks)
        assert torch.equal(output[..., :6, :], again[..., :6, :])
        assert not torch.equal(output, network(**tensors))
        assert torch.equal(
            network(**tensors, text_mask=torch.ones(2, 6), latent_mask=latent_mask.fill_(1)), network(**tensors)
        )


def test_fully_masked_attention_is_not_nan() -> None:
    with torch.no_grad():
        output = tiny()(**inputs(), text_mask=torch.zeros(2, 6), latent_mask=torch.zeros(2, 3, 8, 8))
    assert output.isfinite().all()


def test_compressed_keys_are_initialized_as_means() -> None:
    network = Latte(replace(LATTE, compress_kv_factor=2))
    plane, time = (pair.attn1 for pair in list(network.pairs())[1])
    assert [plane.factor, time.factor] == [2, 2]
    assert [block.attn1.factor for block in network.pairs()[0]] == [1, 1]
    x = torch.arange(16.0).view(1, 16, 1).expand(1, 16, 16)
    mean = plane.sr(x.transpose(1, 2).unflatten(2, (4, 4)))[0, 0].flatten()
    assert mean.tolist() == [2.5, 4.5, 10.5, 12.5]
    odd = time.sr.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0][0, 0].tolist()))
    seen: list[list[float]] = []
    assert time.compress(x[:, :5]).shape == (1, 3, 16)
    odd.remove()
    assert seen == [[0.0, 0.0, 1.0, 2.0, 3.0, 4.0]]


def test_captions_are_projected_once_for_all_frames() -> None:
    network = tiny()
    rows: list[int] = []
    for spatial, _ in network.pairs():
        spatial.attn2.to_k.register_forward_hook(lambda _, __, key: rows.append(key[..., 0].numel()))
    with torch.no_grad():
        network(**inputs(frames=3, joined_images=2), use_image_num=2)
    assert rows == [2 * (1 + 2) * 6] * 2
