"""Rows of the section `model`: which networks and tensors are trained."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode

from mezzotint.diffusion.objective import StepDraws
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.families import sd
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks import assemble
from mezzotint.tasks.check.meta_model import build_described_model
from mezzotint.weights.layouts.sd import LAYOUT

Prepare = Callable[..., Any]


# breaks if the family is fixed: an unknown name would be accepted
@pytest.mark.effect("model.family")
def test_family_is_found_by_name(prepare: Prepare) -> None:
    assert type(prepare(model__family="sd").family) is sd.Family
    assert assemble.family_class(read_text("model: {family: sd}").recipe) is sd.Family
    with pytest.raises(RecipeError, match="sd"):
        assemble.family_class(read_text("model: {family: sdd}").recipe)


# breaks if the model comes from another folder than the named one
@pytest.mark.effect("model.path")
def test_model_path_is_the_folder_read(prepare: Prepare, shared_world: Any, tmp_path: Path) -> None:
    wider = shutil.copytree(shared_world.model, tmp_path / "wider")
    config = json.loads((wider / "unet" / "config.json").read_text())
    config["block_out_channels"] = [32]
    (wider / "unet" / "config.json").write_text(json.dumps(config))
    assert conv_in(prepare(model__path=shared_world.model)).shape[0] == 16
    assert conv_in(prepare(model__path=wider)).shape[0] == 32


def conv_in(ready: Any) -> torch.Tensor:
    weight: torch.Tensor = ready.trainer.model.update.masters["denoiser/conv_in.weight"]
    return weight


# breaks if `files` does not read the weights, or `random` does
@pytest.mark.effect("model.weights")
def test_weights_come_from_files_or_from_the_seed(prepare: Prepare, shared_world: Any) -> None:
    random = prepare(model__weights="random", run__seed=1, optim__ema__rule="none")
    random.trainer.host.export(random.trainer)
    [exported] = random.job.start.folder.exports.iterdir()
    files = prepare(model__path=exported, model__weights="files")
    for name, tensor in random.trainer.model.update.masters.items():
        assert torch.equal(tensor, files.trainer.model.update.masters[name])
    assert not torch.equal(conv_in(prepare(model__path=exported, model__weights="random")), conv_in(files))
    with pytest.raises(WeightsError, match=r"model\.weights=random"):
        prepare(model__path=shared_world.model, model__weights="files")


@pytest.fixture
def one_file(prepare: Prepare, tmp_path: Path) -> tuple[Path, Path]:
    """A model in one file, with an averaged copy of weights larger by 1, and the folder it was made from."""
    random = prepare(model__weights="random", optim__ema__rule="none", run__export__single_file=True)
    random.trainer.host.export(random.trainer)
    folder, file = sorted(random.job.start.folder.exports.iterdir())
    tensors = load_file(file)
    plain = {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}
    copies = {LAYOUT.average(name): tensor + 1 for name, tensor in plain.items()}
    save_file(tensors | copies, tmp_path / "x.safetensors")
    return folder, tmp_path / "x.safetensors"


# breaks if configurations of a single file come from elsewhere: none ship for a file of this size
@pytest.mark.effect("model.config")
def test_config_supplies_configurations_of_a_single_file(prepare: Prepare, one_file: tuple[Path, Path]) -> None:
    folder, file = one_file
    shutil.copytree(folder, other := file.parent / "other")
    path = other / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"beta_end": 0.02}))
    results = [prepare(model__path=file, model__config=config, model__weights="files") for config in (folder, other)]
    assert torch.equal(conv_in(results[0]), conv_in(results[1]))
    assert results[0].objective.schedule.alpha_bar[-1] != results[1].objective.schedule.alpha_bar[-1]
    with pytest.raises(WeightsError, match=r"model\.config"):
        prepare(model__path=file, model__weights="files")


# breaks if the folder's networks are built, by training or by `check`, or networks with read weights are not
@pytest.mark.effect("model.config")
def test_config_defines_networks_with_random_weights(prepare: Prepare, shared_world: Any, tmp_path: Path) -> None:
    other = shutil.copytree(shared_world.model, tmp_path / "other")
    path = other / "unet" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"block_out_channels": [8]}))
    plain, built = prepare(), prepare(model__config=other)
    assert [ready.family.parts()["denoiser"].config.block_out_channels for ready in (plain, built)] == [
        [16], [8],
    ]  # fmt: skip
    assert f"configurations in {other};" in (built.job.start.folder.path / "run.log").read_text()
    settings = built.job.resolved.recipe.model
    assert sum(
        p.numel() for p in build_described_model(sd.Family, settings)[1].parts()["denoiser"].parameters()
    ) == sum(p.numel() for p in built.family.parts()["denoiser"].parameters())
    read = settings.model_copy(update={"weights": "files"})
    assert build_described_model(sd.Family, read)[1].parts()["denoiser"].config.block_out_channels == [16]


# breaks if the model's own autoencoder is used: in training, for the cache's address, or for the export
@pytest.mark.effect("model.vae")
def test_vae_replaces_the_models_own(prepare: Prepare, tmp_path: Path) -> None:
    own = prepare(data__cache__latents=False, optim__ema__rule="none")
    own.trainer.host.export(own.trainer)
    [exported] = own.job.start.folder.exports.iterdir()
    other = shutil.copytree(exported / "vae", tmp_path / "other")
    weights = load_file(other / "diffusion_pytorch_model.safetensors")
    weights["encoder.conv_out.bias"][:4] += 1.0
    save_file({name: t.half() for name, t in weights.items()}, other / "diffusion_pytorch_model.safetensors")
    changed = prepare(model__vae=other, data__cache__latents=False, optim__ema__rule="none")
    pixels = torch.zeros(1, 3, 16, 16)
    means = [ready.family.encode_media(pixels).chunk(2, dim=1)[0] for ready in (own, changed)]
    assert not torch.allclose(means[0], means[1], atol=0.1)
    settings = [ready.recipe.model for ready in (own, changed)]
    assert sd.Family.files.of(settings[0]).media_identity() != sd.Family.files.of(settings[1]).media_identity()
    assert sd.Family.files.of(settings[0]).text_identity() == sd.Family.files.of(settings[1]).text_identity()
    assert any(str(other) in note for note in changed.family.notes)
    changed.trainer.host.export(changed.trainer)
    [again] = changed.job.start.folder.exports.iterdir()
    written = load_file(again / "vae" / "diffusion_pytorch_model.safetensors")
    assert all(torch.equal(written[name], t.half()) for name, t in weights.items())


# breaks if the averaged copy is always used, or never
@pytest.mark.effect("model.ema_weights")
def test_ema_weights_selects_the_trained_copy(prepare: Prepare, one_file: tuple[Path, Path]) -> None:
    folder, file = one_file
    settings = {"model__path": file, "model__config": folder, "model__weights": "files"}
    plain, ignored, used = (prepare(**settings, **which) for which in (
        {}, {"model__ema_weights": "ignore"}, {"model__ema_weights": "use"},
    ))  # fmt: skip
    assert torch.equal(conv_in(plain), conv_in(ignored))
    assert torch.equal(conv_in(used), conv_in(plain) + 1)


# breaks if the setting does not reach the objective's target, or the exported scheduler
@pytest.mark.effect("model.prediction")
def test_prediction_sets_the_target(prepare: Prepare) -> None:
    x_0 = torch.full((2, 4, 2, 2), 0.5)
    draws, times = StepDraws.at(0, 0, np.arange(2), "cpu"), torch.tensor([100, 900])
    for word, name in (("null", "epsilon"), ("epsilon", "epsilon"), ("v", "v_prediction")):
        ready = prepare(model__prediction=word, optim__ema__rule="none")
        noised = ready.objective.noise_at(x_0, draws, times)
        a = ready.objective.schedule.alpha_bar[times].reshape(2, 1, 1, 1)
        v = a.sqrt() * noised.noise - (1 - a).sqrt() * x_0
        torch.testing.assert_close(ready.objective.target(noised), v if word == "v" else noised.noise)
        ready.trainer.host.export(ready.trainer)
        [exported] = ready.folder.exports.iterdir()
        config = json.loads((exported / "scheduler" / "scheduler_config.json").read_text())
        assert config["prediction_type"] == name


# breaks if the last layer is always used, or the final norm is missing
@pytest.mark.effect("model.clip_skip")
def test_clip_skip_omits_last_layers(prepare: Prepare) -> None:
    whole, skipped = (prepare(model__clip_skip=n, data__cache__text=False).family for n in (0, 1))
    encoder = skipped.parts()["text_encoder"]
    seen: list[torch.Tensor] = []
    hook = encoder.encoder.layers[0].register_forward_hook(
        lambda module, inputs, output: seen.append(output[0] if isinstance(output, tuple) else output)
    )
    states = skipped.encode_text(["a red circle"]).states
    hook.remove()
    assert len(encoder.encoder.layers) == 2
    torch.testing.assert_close(states, encoder.final_layer_norm(seen[0]))
    assert not torch.allclose(states, whole.encode_text(["a red circle"]).states)


# breaks if a part that is not named changes, or a named one does not
@pytest.mark.effect("model.train")
@pytest.mark.parametrize("parts", [["denoiser"], ["text_encoder"], ["denoiser", "text_encoder"]])
def test_train_names_the_parts_that_change(prepare: Prepare, parts: list[str]) -> None:
    ready = prepare(model__train=parts, data__cache__text=False, data__cache__latents=False)
    before = {part: [p.detach().clone() for p in m.parameters()] for part, m in ready.family.parts().items()}
    ready.step()
    moved = {
        part
        for part, module in ready.family.parts().items()
        if any(not torch.equal(old, new) for old, new in zip(before[part], module.parameters(), strict=True))
    }
    assert moved == set(parts)
    assert {name.split("/")[1] for name in ready.trainer.tensors() if name.startswith("w/")} == set(parts)


# breaks if a pattern has no effect, or freezes more than it matches
@pytest.mark.effect("model.freeze")
def test_freeze_keeps_what_its_patterns_match(prepare: Prepare) -> None:
    ready = prepare(model__freeze=["denoiser/down_blocks.*", "*.bias"], optim__lr=1e-3)
    before = {name: p.detach().clone() for name, p in ready.family.parts()["denoiser"].named_parameters()}
    ready.step()
    for name, parameter in ready.family.parts()["denoiser"].named_parameters():
        is_frozen = name.startswith("down_blocks.") or name.endswith(".bias")
        assert torch.equal(before[name], parameter.detach()) == is_frozen, name


class Kernels(TorchDispatchMode):
    """Counts calls of fused attention kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        self.calls["flash" if "flash_attention" in name else "softmax" if "_softmax." in name else ""] += 1
        return func(*args, **(kwargs or {}))


# breaks if the trainer computes attention outside of the kernel's context
@pytest.mark.effect("model.attention")
def test_attention_selects_the_kernel(prepare: Prepare) -> None:
    results = {}
    for kernel in ("flash", "math"):
        ready = prepare(model__attention=kernel)
        batches = ready.next_batches()
        with Kernels() as seen:
            ready.trainer.train_step(batches)
        results[kernel] = seen.calls
    assert results["flash"]["flash"] > 0
    assert results["flash"]["softmax"] == 0
    assert results["math"]["flash"] == 0
    assert results["math"]["softmax"] > 0


# breaks if heads are not computed separately, or give other gradients than together
@pytest.mark.effect("model.attention")
def test_sliced_attention_trains_the_same(prepare: Prepare) -> None:
    results = {}
    for attention in ("auto", "slice"):
        ready = prepare(model__attention=attention, optim__ema__rule="none")
        with Kernels() as seen:
            step = ready.step()
        results[attention] = (seen.calls, step)
    (auto, whole), (sliced, parts) = results["auto"], results["slice"]
    assert auto["softmax"] == 0
    assert sliced["flash"] == 0
    assert sliced["softmax"] > 0
    assert whole.grads.keys() == parts.grads.keys()
    for name, grad in whole.grads.items():
        torch.testing.assert_close(parts.grads[name], grad, rtol=1e-3, atol=1e-6, msg=name)
    assert parts.report.loss == pytest.approx(whole.report.loss, rel=1e-5)


# breaks if a package that is not installed is ignored silently
@pytest.mark.effect("model.attention")
def test_xformers_needs_its_package(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzotint.training.precision.attention.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"mezzotint\[xformers\]") as caught:
        prepare(model__attention="xformers")
    assert caught.value.code == "E1062"


# breaks if the denoiser is not passed to the package, or its refusal is not reported
@pytest.mark.effect("model.attention")
def test_xformers_is_enabled_on_the_denoiser(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzotint.training.precision.attention.find_spec", lambda name: object())
    calls: list[str] = []
    where = "diffusers.UNet2DConditionModel.enable_xformers_memory_efficient_attention"
    monkeypatch.setattr(where, lambda self: calls.append(type(self).__name__))
    prepare(model__attention="xformers")
    assert calls == ["UNet2DConditionModel"]

    def refuse(self: Any) -> None:
        raise ValueError("no GPU")

    monkeypatch.setattr(where, refuse)
    with pytest.raises(
        RecipeError, match=r"cannot compute this model's attention on this machine \(no GPU\)"
    ) as caught:
        prepare(model__attention="xformers")
    assert caught.value.code == "E1060"
