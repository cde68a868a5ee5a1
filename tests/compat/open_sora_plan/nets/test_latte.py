"""LatteT2V: shapes and names of the released sizes, clips and joined stills, masks, gradient checkpointing, compile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from diffusers.models.transformers.latte_transformer_3d import LatteTransformer3DModel
from small_nets import LATTE, inputs, released, tiny
from torch import Tensor

from mezzotint.compat.open_sora_plan.nets.latte import Latte, LatteConfig
from mezzotint.runtimes.base import recompute_blocks
from mezzotint.settings.sections.run import RecomputeSettings
from mezzotint.weights.folder.state import build_on_meta

RELEASED = {"latte-17f": 5, "latte-65f": 17, "latte-221f": 56}


@pytest.mark.parametrize("name", RELEASED)
def test_released_configuration_gives_the_released_tensors(name: str) -> None:
    config = LatteConfig.read(released(name))
    assert config.video_length == RELEASED[name]
    assert config.time_scale == (3 if name == "latte-221f" else 1)
    network = build_on_meta(lambda: Latte(config))
    names = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    assert len(names) == 16 + 34 * 28
    assert sum(p.numel() for p in network.parameters()) == 1_057_246_880
    blocks = [sum(p.numel() for p in block.parameters()) for block in network.pairs()[0]]
    assert blocks == [21_255_552, 15_942_528]
    assert names["caption_projection.y_embedding"] == (120, 4096)
    assert names["adaln_single.emb.timestep_embedder.linear_1.weight"] == (1152, 256)
    assert names["adaln_single.linear.weight"] == (6912, 1152)
    assert names["proj_out.weight"] == (32, 1152)
    assert names["pos_embed.proj.weight"] == (1152, 4, 2, 2)
    last = {
        k.removeprefix("temporal_transformer_blocks.27.") for k in names if k.startswith("temporal") and ".27." in k
    }
    kinds = ("to_q", "to_k", "to_v", "to_out.0")
    pairs = [f"attn1.{kind}" for kind in kinds] + ["ff.net.0.proj", "ff.net.2"]
    assert last == {"scale_shift_table"} | {f"{stem}.{leaf}" for stem in pairs for leaf in ("weight", "bias")}


def test_tensors_match_diffusers_except_an_unused_table() -> None:
    config = released("latte-17f")
    config = {k: v for k, v in config.items() if not k.startswith("_")} | {"sample_size": 64}
    theirs = build_on_meta(lambda: LatteTransformer3DModel.from_config(config))
    ours = build_on_meta(lambda: Latte(LatteConfig.read(dict(theirs.config))))
    shapes = [{k: tuple(t.shape) for k, t in network.state_dict().items()} for network in (ours, theirs)]
    assert shapes[0].pop("caption_projection.y_embedding") == (120, 4096)
    assert shapes[0] == shapes[1]


def test_output_for_a_clip_matches_diffusers() -> None:
    network = tiny()
    theirs = LatteTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        out_channels=8,
        num_layers=2,
        cross_attention_dim=16,
        attention_bias=True,
        sample_size=8,
        patch_size=2,
        activation_fn="gelu-approximate",
        num_embeds_ada_norm=1000,
        norm_type="ada_norm_single",
        norm_elementwise_affine=False,
        norm_eps=1e-6,
        caption_channels=12,
        video_length=3,
    )
    state = network.state_dict()
    state.pop("caption_projection.y_embedding")
    theirs.load_state_dict(state)
    tensors = inputs()
    mask = torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]])
    bias = ((1 - mask.float()) * -10000.0)[:, None].repeat_interleave(3, dim=0)
    with torch.no_grad():
        expected = theirs(tensors["latents"], tensors["timestep"], tensors["text"][:, 0], bias).sample
        ours = network(**tensors, text_mask=mask)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


def test_clips_and_joined_stills_do_not_attend_to_each_other() -> None:
    network, joint = tiny(), inputs(frames=3, joined_images=2)
    with torch.no_grad():
        both = network(**joint, use_image_num=2)
        clip = network(joint["latents"][:, :, :3], joint["timestep"], joint["text"][:, :1])
        for still in range(2):
            alone = network(
                joint["latents"][:, :, 3 + still : 4 + still],
                joint["timestep"],
                joint["text"][:, 1 + still],
                temporal=False,
            )
            torch.testing.assert_close(both[:, :, 3 + still : 4 + still], alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(both[:, :, :3], clip, rtol=0, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"use_rope": True}, {"compress_kv_factor": 2}])
def test_samples_of_a_batch_are_independent(changes: dict[str, Any]) -> None:
    network, joint = tiny(**changes), inputs(frames=3, joined_images=1)
    masks = {"text_mask": torch.tensor([[[1, 1, 0, 0, 0, 0], [1] * 6], [[1] * 6, [1, 0, 0, 0, 0, 0]]])}
    masks["latent_mask"] = torch.ones(2, 4, 8, 8)
    masks["latent_mask"][0, :, 4:] = 0
    with torch.no_grad():
        both = network(**joint, **masks, use_image_num=1)
        for i in range(2):
            one = {name: tensor[i : i + 1] for name, tensor in (joint | masks).items()}
            torch.testing.assert_close(network(**one, use_image_num=1), both[i : i + 1], rtol=0, atol=1e-5)


def test_all_parameters_have_gradients() -> None:
    for changes in ({}, {"compress_kv_factor": 2}):
        network = tiny(**changes)
        network(**inputs(joined_images=1), use_image_num=1).square().mean().backward()
        still = [n for n, p in network.named_parameters() if p.grad is None or p.grad.abs().max() == 0]
        # a bias of all keys alike changes no softmax
        assert [name for name in still if not name.endswith("to_k.bias")] == []


def test_clips_may_exceed_the_configured_size() -> None:
    network = tiny()
    rng = torch.Generator().manual_seed(3)
    latents = torch.randn(1, 4, 7, 6, 12, generator=rng)
    with torch.no_grad():
        output = network(latents, torch.tensor([5]), inputs(batch=1)["text"])
    assert output.shape == (1, 8, 7, 6, 12)


def test_joined_still_equals_a_clip_of_one_frame() -> None:
    network, tensors = tiny(), inputs(frames=1)
    with torch.no_grad():
        output, alone = network(**tensors), network(**tensors, temporal=False)
    assert output.shape == (2, 8, 1, 8, 8)
    assert not torch.equal(output, alone)


@contextmanager
def kept(network: Latte, sizes: dict[int, int]) -> Iterator[None]:
    """Counts, by storage, the bytes that the forward pass keeps for the backward pass, parameters apart."""
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def test_gradient_checkpointing_skips_exempt_pairs() -> None:
    """The last pairs are exempt, as Open-Sora-Plan counts: the first of the pairs counted from the end."""
    saved, gradients = {}, {}
    for exempt in (None, 0, 1, 2, 4):
        network = tiny(num_layers=4)
        if exempt is not None:
            pairs = list(network.pairs())
            assert recompute_blocks(reversed(pairs), RecomputeSettings(skip_first=exempt)) == 4 - exempt
            wrapped = ["forward" in vars(spatial) for spatial, _ in pairs]
            assert wrapped == [True] * (4 - exempt) + [False] * exempt
        sizes: dict[int, int] = {}
        with kept(network, sizes):
            loss = network(**inputs(joined_images=1), use_image_num=1).square().mean()
        loss.backward()
        saved[exempt] = sum(sizes.values())
        gradients[exempt] = {name: p.grad for name, p in network.named_parameters()}
    assert saved[0] < saved[1] < saved[2] < saved[4] == saved[None]
    assert saved[0] < saved[None] / 4
    each = [saved[b] - saved[a] for a, b in ((0, 1), (1, 2))]
    assert each[0] == pytest.approx(each[1], rel=0.05)
    for name, gradient in gradients[None].items():
        assert all(torch.equal(gradient, gradients[exempt][name]) for exempt in (0, 1, 2, 4))


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"use_rope": True}, {"compress_kv_factor": 2}])
def test_forward_is_one_graph_without_device_reads(changes: dict[str, Any]) -> None:
    tensors = inputs(joined_images=1) | {"text_mask": torch.ones(2, 2, 6), "latent_mask": torch.ones(2, 4, 8, 8)}
    on_device = {name: tensor.to("meta") for name, tensor in tensors.items()}  # reading a number there is an error
    network = tiny(num_layers=1, **changes)
    assert tiny(**changes).to("meta")(**on_device, use_image_num=1).shape == (2, 8, 4, 8, 8)
    compiled = torch.compile(network, backend="eager", fullgraph=True, dynamic=False)
    with torch.no_grad():
        torch.testing.assert_close(compiled(**tensors, use_image_num=1), network(**tensors, use_image_num=1))


def test_bf16_weights_give_nearly_the_same_bf16_output() -> None:
    network, tensors = tiny(use_rope=True), inputs(joined_images=1)
    masks = {"text_mask": torch.ones(2, 2, 6), "latent_mask": torch.ones(2, 4, 8, 8)}
    with torch.no_grad():
        exact = network(**tensors, **masks, use_image_num=1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = network(**tensors, **masks, use_image_num=1)
        half = {name: t.bfloat16() if t.is_floating_point() else t for name, t in tensors.items()}
        rounded = network.bfloat16()(**half, **masks, use_image_num=1)
    assert rounded.dtype == torch.bfloat16
    scale = exact.abs().mean()
    assert (rounded.float() - exact).abs().mean() < 0.05 * scale
    assert (cast.float() - exact).abs().mean() < 0.05 * scale


def test_network_built_on_meta_has_no_buffers_to_fill() -> None:
    source = tiny()
    network = build_on_meta(lambda: Latte(LATTE))
    network.load_state_dict(source.state_dict(), strict=True, assign=True)
    assert not any(t.is_meta for t in (*network.parameters(), *network.buffers()))
    with torch.no_grad():
        assert torch.equal(network(**inputs()), source(**inputs()))
