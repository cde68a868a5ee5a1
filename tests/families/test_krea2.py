"""Krea 2 compared with diffusers' pipeline, which is run here, and with the tensors of the authors' code."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import Krea2Pipeline

from mezzotint.adapters import files as adapter_files
from mezzotint.adapters import merging
from mezzotint.adapters.names import LayerNames
from mezzotint.cli import main
from mezzotint.errors import WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.families.krea2 import Family, Files
from mezzotint.sampling.requests import Request, Sampling, initial_noise
from mezzotint.sampling.sample import sample_latents
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.weights.folder import components
from mezzotint.weights.single_file import original
from support.model_export import export_model, load_model
from support.sd_folder import edit

MODEL = Path(__file__).parents[1] / "parity" / "data" / "flow" / "krea2" / "model"
PROMPTS = ["a red circle", "two birds above the old wall, painted in oil"]
NEGATIVES = ["dark", "a small grey photo of one dog and three cats"]
SIZE = Size(64, 96)


def settings_of(folder: Path = MODEL, **values: Any) -> ModelSettings:
    return ModelSettings.model_validate({"family": "krea2", "path": folder, **values})


def open_pipeline(folder: Path) -> Any:
    pipeline = Krea2Pipeline.from_pretrained(str(folder), local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def assert_same_step(family: ModelFamily, pipeline: Any, guidance: float) -> None:
    """A step of each from the same noise ends at the same latents."""
    requests = [
        Request(prompt, SIZE, seed=4, negative=negative) for prompt, negative in zip(PROMPTS, NEGATIVES, strict=True)
    ]
    settings = SampleSettings(steps=2, guidance=(guidance,), solver="euler")
    ours = sample_latents(family, requests, Sampling(family.schedule, family.prediction, "cpu", settings))
    tokens = pipeline._pack_latents(initial_noise(family, requests), 2, 16, SIZE.height // 8, SIZE.width // 8)
    theirs = pipeline(
        PROMPTS, negative_prompt=NEGATIVES, height=SIZE.height, width=SIZE.width, num_inference_steps=2,
        guidance_scale=guidance, latents=tokens, output_type="latent",
    ).images  # fmt: skip
    torch.testing.assert_close(
        ours, pipeline._unpack_latents(theirs, SIZE.height, SIZE.width)[:, :, 0], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(("guidance", "is_distilled"), [(0.0, True), (4.5, False)])
def test_steps_equal_those_of_the_pipeline(guidance: float, is_distilled: bool, tmp_path: Path) -> None:
    """Turbo has the same shift at every resolution."""
    folder = Path(shutil.copytree(MODEL, tmp_path / "model"))
    edit(folder / "model_index.json", is_distilled=is_distilled)
    assert_same_step(Family.of(settings_of(folder)), open_pipeline(folder), guidance)


def test_export_and_adapter_in_the_pipeline_equal_the_trained_model(
    shared_world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = shared_world
    common = {
        "model__family": "krea2", "model__path": MODEL, "model__weights": "files", "data__buckets__step": 16,
        "data__batch_size": 2, "model__krea2__text_tokens": 48, "optim__lr": 1e-2, "optim__ema__rule": "none",
        "model__adapter__kind": "lora", "model__adapter__rank": 2,
    }  # fmt: skip
    assert world.train("krea2-whole", **common, run__steps=4) == 0
    assert world.train("krea2-parts", **common, run__steps=2) == 0
    assert main(["train", str(world.root / "krea2-parts"), "run.extend=2 steps"]) == 0
    assert world.end("krea2-parts").tensors == world.end("krea2-whole").tensors
    written = sorted((world.root / "krea2-whole" / "exports").rglob("*.safetensors"))
    names, family = LayerNames.of(Files.of(settings_of())), Family.of(settings_of())
    adapter = adapter_files.read(written[0], names)
    assert (
        min(float(module.difference(names.weights[layer]).abs().max()) for layer, module in adapter.modules.items()) > 0
    )
    merging.merge_into(family.parts()["denoiser"], "transformer", [(adapter, 1.0)])
    for layout, reader in (("diffusers", "diffusers"), ("ai-toolkit", "diffusers"), ("comfy", "ComfyUI")):
        file = tmp_path / f"{layout}.safetensors"
        assert main(["convert", str(written[0]), str(file), f"--base={MODEL}", f"--layout={layout}"]) == 0
        capsys.readouterr()
        assert main(["check-adapter", str(file), f"--base={MODEL}"]) == 0
        assert re.search(rf"{reader} +(\d+) of \1 layers, strength as trained\n", out := capsys.readouterr().out)
        if reader == "diffusers":
            assert len(Krea2Pipeline.lora_state_dict(str(file))) == 2 * len(adapter.modules)
        else:
            assert re.search(r"diffusers +0 of", out)
            with pytest.raises(ValueError, match="should be empty"):
                Krea2Pipeline.lora_state_dict(str(file))
    pipeline = open_pipeline(MODEL)
    pipeline.load_lora_weights(str(written[0].parent), weight_name="pytorch_lora_weights.safetensors")
    assert_same_step(family, pipeline, 4.5)
    export = export_model(load_model(Family, settings_of()), tmp_path / "export")
    assert_same_step(Family.of(settings_of()), open_pipeline(export), 0.0)


@pytest.mark.parametrize("words", [1, 9, 10, 11, 12, 13, 14, 40])
@torch.no_grad()
def test_truncated_caption_keeps_the_end_of_the_template(words: int) -> None:
    """As in the pipeline, which cuts the caption so that the end fits."""
    caption = "red" * words
    ours = Family.of(settings_of(krea2={"text_tokens": 16})).encode_text([caption])
    states, mask = open_pipeline(MODEL).encode_prompt([caption], max_sequence_length=16)
    assert ours.lengths == (int(mask.sum()),)
    torch.testing.assert_close(ours.states[0, : ours.lengths[0]], states[0, mask[0]].flatten(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layers", [[1, 2], [1, 2, 5], "all"])
def test_text_layers_that_do_not_fit_are_refused(layers: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(MODEL, tmp_path / "model"))
    edit(folder / "model_index.json", text_encoder_select_layers=layers)
    with pytest.raises(WeightsError, match="must be 3 numbers of layers, each at most 4") as caught:
        Files.of(settings_of(folder)).text_shape()
    assert caught.value.code == "E1409"


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("transformer", {"num_text_layers": "x"}, "has an unusable value"),
        ("text_encoder", {"text_config": {"hidden_size": 16}}, "lacks num_hidden_layers"),
    ],
)
def test_configurations_that_do_not_count_layers_are_refused(
    part: str, values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(MODEL, tmp_path / "model"))
    edit(folder / part / "config.json", **values)
    with pytest.raises(WeightsError, match=message) as caught:
        Files.of(settings_of(folder)).text_shape()
    assert caught.value.code == "E1409"


def test_written_file_has_the_tensors_of_the_authors_code() -> None:
    """Those of `SingleStreamDiT` in krea-ai/krea-2 (src/krea2/models/transformer.py) with the widths of Krea 2."""
    wide, text, latents = 6144, 2560, 64
    expected: dict[str, tuple[int, ...]] = {
        "first.weight": (wide, latents), "first.bias": (wide,), "last.linear.weight": (latents, wide),
        "last.linear.bias": (latents,), "last.norm.scale": (wide,), "last.modulation.lin": (2, wide),
        "tmlp.0.weight": (wide, 256), "tmlp.0.bias": (wide,), "tmlp.2.weight": (wide, wide), "tmlp.2.bias": (wide,),
        "tproj.1.weight": (6 * wide, wide), "tproj.1.bias": (6 * wide,), "txtmlp.0.scale": (text,),
        "txtmlp.1.weight": (wide, text), "txtmlp.1.bias": (wide,), "txtmlp.3.weight": (wide, wide),
        "txtmlp.3.bias": (wide,), "txtfusion.projector.weight": (1, 12),
    }  # fmt: skip
    blocks = [(f"blocks.{n}", wide, 12 * 128, 128, 16384) for n in range(28)]
    blocks += [
        (f"txtfusion.{kind}_blocks.{n}", text, text, 128, 6912) for kind in ("layerwise", "refiner") for n in (0, 1)
    ]
    for start, width, of_keys, of_head, inner in blocks:
        expected |= {f"{start}.attn.{name}.weight": (width, width) for name in ("wq", "gate", "wo")}
        expected |= {f"{start}.attn.{name}.weight": (of_keys, width) for name in ("wk", "wv")}
        expected |= {f"{start}.attn.qknorm.{name}norm.scale": (of_head,) for name in "qk"}
        expected |= {f"{start}.mlp.{name}.weight": (inner, width) for name in ("gate", "up")}
        expected |= {f"{start}.mlp.down.weight": (width, inner)}
        expected |= {f"{start}.{name}norm.scale": (width,) for name in ("pre", "post")}
        expected |= {f"{start}.mod.lin": (6 * wide,)} if start.startswith("blocks") else {}
    network = Files.spec.networks["denoiser"]
    shapes = components.shapes(network, {}, where=Path("config.json"))
    assert original.plan(network, {}, shapes, Files.renames, flat=Files.flat).shapes == expected
