"""Rows of starting from foreign weights, of dropped captions, fewer layers and prefetched batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mezzotint.data.loading.prefetch import Prefetched
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.families.sdxl import Family
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.tasks.assemble import family_class
from support.model_export import export_model, files_of, load_model

Prepare = Callable[..., Any]


# breaks if rates, data, draws or the end of the run are those of a run from step 0
@pytest.mark.effect("run.start.step")
def test_start_step_resumes_from_foreign_weights(prepare: Prepare) -> None:
    settings = {"optim__schedule__kind": "linear", "optim__schedule__warmup_steps": 2, "run__steps": 8}
    whole = prepare(**settings)
    steps = [whole.step() for _ in range(5)]
    later = prepare(run__start__step=3, **settings)
    first = later.step()
    assert (first.report.step, first.report.rates) == (3, steps[3].report.rates)
    assert first.report.keys == steps[3].report.keys
    assert first.report.timesteps == steps[3].report.timesteps
    assert later.trainer.progress.step == later.trainer.progress.first_step == 3
    assert float(later.trainer.model.update.applied) == 1.0
    [started] = [one for one in later.job.start.folder.events() if one["event"] == "started"]
    assert started["step"] == 3
    later.trainer.host.save(later.trainer)
    with pytest.raises(RecipeError, match=r"run.start.step is 8, and the run ends at step 8; raise run.steps"):
        prepare(run__start__step=8, **settings)


# breaks if dropped captions keep the empty caption's embedding, or others become zeros
@pytest.mark.effect("data.captions.dropped")
def test_dropped_captions_become_zeros(prepare: Prepare) -> None:
    for cached in (True, False):
        settings = {"data__captions__dropout": 0.5, "data__cache__text": cached}
        for word in ("empty", "zeros"):
            ready = prepare(data__captions__dropped=word, **settings)
            batches = [batch for _ in range(3) for batch in ready.next_batches().batches]
            seen: list[torch.Tensor] = []
            plain = ready.family.condition
            ready.family.condition = lambda text, batch, seen=seen, plain=plain: (
                seen.append(text.states), plain(text, batch)
            )[1]  # fmt: skip
            with torch.no_grad():
                for batch in batches:
                    ready.trainer.train_step.loss(batch, 0)
            captions = [caption for batch in batches for caption in batch.captions]
            zeros = [not bool(states.any()) for one in seen for states in one]
            assert 0 < captions.count("") < len(captions)
            assert zeros == [word == "zeros" and caption == "" for caption in captions]


# breaks if the layers stay in the network, others are removed, or the run does not report which
@pytest.mark.effect("model.depth")
def test_depth_removes_transformer_layers_and_names_them(sdxl_folder: Path) -> None:
    words = [f"model.path={sdxl_folder}", "model.family=sdxl"]
    recipe = resolve_paths(read_text("schema: 1", overrides=[*words, "model.depth=[1, 1]"]))
    assert recipe.model.depth == (1, 1)
    kind = family_class(recipe)
    whole = Family.of(ModelSettings(family="sdxl", path=sdxl_folder), only=["denoiser"])
    less = kind.of(recipe.model, only=["denoiser"])
    full, small = (dict(f.parts()["denoiser"].named_parameters()) for f in (whole, less))
    lost = full.keys() - small.keys()
    assert lost
    assert small.keys() < full.keys()
    assert all(".transformer_blocks.1." in name for name in lost)
    assert all(torch.equal(small[name], full[name]) for name in small)
    [note] = [note for note in less.notes if "model.depth" in note]
    layers = {name.partition(".transformer_blocks.1.")[0] + ".transformer_blocks.1" for name in lost}
    assert note.startswith(f"denoiser: model.depth removes {len(layers)} transformer layers: ")
    assert all(layer in note for layer in layers)
    same = Family.of(ModelSettings(family="sdxl", path=sdxl_folder, depth=(1, 2)), only=["denoiser"])
    assert not [note for note in same.notes if "model.depth" in note], "the depth of the files removes no layer"
    assert fingerprints(recipe.model, "denoiser") != fingerprints(whole_settings(sdxl_folder), "denoiser")
    for depth in ((1, 9), (1,), (1, 0)):
        with pytest.raises(WeightsError, match=r"does not fit a denoiser with \[1, 2\]"):
            Family.of(ModelSettings(family="sdxl", path=sdxl_folder, depth=depth), only=["denoiser"])


# breaks if files are not read, the first overrides the last, tensors that they lack are lost, or an export omits them
@pytest.mark.effect("model.over")
def test_over_files_replace_tensors_and_the_last_wins(prepare: Prepare, sdxl_folder: Path, tmp_path: Path) -> None:
    base = load_model(Family, ModelSettings(family="sdxl", path=sdxl_folder))
    state = base.parts()["denoiser"].state_dict()
    whole, chosen = tmp_path / "unet_1.safetensors", tmp_path / "bias.safetensors"
    written = {f"denoiser/{name}": tensor + 1 for name, tensor in state.items()}
    base.export_parts(whole, ["denoiser"], files_of(base), weights=written, dtype="fp32")
    save_file({"model.diffusion_model.out.2.bias": state["conv_out.bias"] + 2}, chosen)
    settings = {
        "model__family": "sdxl",
        "model__path": sdxl_folder,
        "model__weights": "files",
        "model__over": [str(whole), str(chosen)],
    }
    ready = prepare(**settings, data__cache__latents=False, data__cache__text=False, optim__ema__rule="none")
    result = ready.family.parts()["denoiser"].state_dict()
    for name, tensor in result.items():
        assert torch.equal(tensor, state[name] + (2 if name == "conv_out.bias" else 1)), name
    vae = ready.family.parts()["vae"].state_dict()
    assert all(torch.equal(tensor, vae[name].cpu()) for name, tensor in base.parts()["vae"].state_dict().items())
    notes = "\n".join(ready.family.notes)
    assert f"{len(state) - 1} of {len(state)} tensors of unet from {whole}" in notes
    assert f"1 of {len(state)} tensors of unet from {chosen}" in notes

    over = ModelSettings(family="sdxl", path=sdxl_folder, over=(whole, chosen))
    same = [
        part for part in base.parts() if fingerprints(over, part) == fingerprints(whole_settings(sdxl_folder), part)
    ]
    assert same == [part for part in base.parts() if part != "denoiser"], "caches of the other parts stay"
    encoder = ModelSettings(family="sdxl", path=sdxl_folder, over=over.over, train=("text_encoder",))
    out = tmp_path / "out"
    schedule = Schedule.from_config({})
    export_model(load_model(Family, encoder, ["text_encoder"]), out, schedule=schedule, prediction="epsilon")
    exported = load_file(out / "unet" / "diffusion_pytorch_model.safetensors")
    assert all(torch.equal(tensor, exported[name]) for name, tensor in result.items())
    for other in ("model.weights=random", "model.ema_weights=use"):
        with pytest.raises(RecipeError, match=r"model\.over replaces tensors of a model's plain weights"):
            read_text("schema: 1", overrides=["model.over=x.ckpt", other])


def fingerprints(settings: ModelSettings, part: str) -> str:
    return Family.files.of(settings).fingerprint(part)


def whole_settings(path: Path) -> ModelSettings:
    return ModelSettings(family="sdxl", path=path)


# breaks if batches have another order or other draws, or the setting starts no thread
@pytest.mark.effect("run.device_prefetch")
def test_device_prefetch_is_bitwise_identical(prepare: Prepare) -> None:
    settings = {"data__cache__latents": False, "data__cache__text": False, "run__micro_batch": 2}
    plain = prepare(**settings).step().after
    ready = prepare(run__device_prefetch=2, **settings)
    assert isinstance(ready.trainer.batches, Prefetched)
    ready.trainer.train_step(next(iter(ready.trainer.batches)))
    masters = ready.trainer.model.update.masters
    assert all(torch.equal(masters[name], plain[name]) for name in plain)
    ready.job.close()
    cached = prepare(data__cache__latents=True)
    assert isinstance(cached.trainer.batches, Prefetched), "rows of a cache are prefetched, too"
    cached.job.close()
