"""Files, versions, tasks and adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from musubi_commands import DATA, EDITS, changed, notes, problems, settings

from mezzotint.compat.musubi._dataset_file import DATASET
from mezzotint.compat.musubi._model import LAYERS
from mezzotint.compat.musubi._rows_model import NETWORK
from mezzotint.compat.musubi._scripts import SCRIPTS
from mezzotint.compat.musubi.dialect import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched

GUIDE = (Path(DIALECT.compute.__code__.co_filename).parent / "guide.md").read_text("utf-8")
WAN, QWEN, FLUX = "wan_train_network", "qwen_image_train_network", "flux_2_train_network"
KONTEXT = "flux_kontext_train_network"
A14B = "--task=t2v-A14B"


def test_guide_names_all_arguments_keys_and_scripts() -> None:
    names = {*(row.flag for row in NETWORK), *DATASET, *SCRIPTS}
    assert {name for name in names if f"`{name}`" not in GUIDE and f"`{name} " not in GUIDE} == set()


@pytest.mark.parametrize("script", [name for name, one in SCRIPTS.items() if one.method == "adapter"])
def test_layers_are_those_of_the_family(script: str) -> None:
    targets = settings(script)["model.adapter.targets"]
    assert targets == [f"denoiser/{layer}" for layer in LAYERS[SCRIPTS[script].family]]


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        (QWEN, "--text_encoder=te.safetensors", {"model.over": ["te.safetensors"]}),
        (KONTEXT, "--text_encoder1=t5.safetensors --text_encoder2=clip.safetensors --vae=ae.safetensors --fp8_t5",
         {"model.over": ["t5.safetensors", "clip.safetensors"], "model.vae": "ae.safetensors"}),
        (KONTEXT, "--dit=flux1-kontext-dev.safetensors", {"model.path": "flux1-kontext-dev.safetensors"}),
        (WAN, "--t5=t5.pth", {}),
        (FLUX, "--vae=ae.safetensors", {}),
        (FLUX, "--vae=folder", {"model.vae": "folder"}),
        (FLUX, "--model_version=klein-9b", {"model.flux2.distilled": True}),
        (FLUX, "--model_version=klein-base-9b", {}),
        (FLUX, "--model_version=dev", {"model.flux2.guidance": 1.0}),
        (FLUX, "--model_version=dev --dit=flux2-dev.safetensors --guidance_scale=2",
         {"model.flux2.guidance": 2.0, "model.path": "flux2-dev.safetensors",
          "model.config": "black-forest-labs/FLUX.2-dev"}),
        (QWEN, "--model_version=original", {}),
        *((QWEN, f"{words} --dit=a.safetensors --dataset_config={EDITS}",
           {"model.path": "a.safetensors", "model.config": f"Qwen/Qwen-Image-Edit{version}",
            "data.conditions.source.folder": "before"})
          for words, version in (("--edit", ""), ("--model_version=edit", ""), ("--edit_plus", "-2509"),
                                 ("--model_version=edit-2509", "-2509"), ("--model_version=edit-2511", "-2511"))),
        (WAN, "--task=t2i-14B", {}),
        (WAN, f"{A14B} --dit=wan2.2_t2v_high_noise_14B_fp16.safetensors",
         {"model.path": "wan2.2_t2v_high_noise_14B_fp16.safetensors",
          "model.config": "Wan-AI/Wan2.2-T2V-A14B-Diffusers"}),
        (WAN, f"{A14B} --max_timestep=875 --timestep_sampling=uniform",
         {"model.train": ["denoiser_2"], "model.adapter.targets": ["denoiser_2/blocks.*"],
          "objective.flow.grid": "continuous", "objective.flow.sigmas": [0.0, 0.875]}),
        ("zimage_train_network", "--dit=z_image_turbo_bf16.safetensors",
         {"model.path": "z_image_turbo_bf16.safetensors", "model.config": "Tongyi-MAI/Z-Image-Turbo",
          "model.z_image.distilled": True}),
        ("zimage_train_network", "--dit=z_image_de_turbo.safetensors",
         {"model.path": "z_image_de_turbo.safetensors", "model.config": "Tongyi-MAI/Z-Image"}),
        (FLUX, "--dit=a.safetensors --model_version=klein-base-9b",
         {"model.path": "a.safetensors", "model.config": "black-forest-labs/FLUX.2-klein-base-9B"}),
        (QWEN, "--dit=a.safetensors", {"model.path": "a.safetensors", "model.config": "Qwen/Qwen-Image"}),
        (WAN, "--network_module=networks.loha", {"model.adapter.kind": "loha"}),
        (WAN, "--network_args conv_dim=4 verbose=True rank_dropout=0", {}),
        (WAN, "--network_args rank_dropout=0.1 module_dropout=0.2 loraplus_lr_ratio=16",
         {"model.adapter.rank_dropout": 0.1, "model.adapter.module_dropout": 0.2, "model.adapter.b_lr_ratio": 16}),
    ],
)  # fmt: skip
def test_settings_of_the_model(script: str, words: str, expected: dict[str, Any]) -> None:
    assert changed(script, *words.split()) == expected


@pytest.mark.parametrize(
    ("script", "words", "text"),
    [
        (WAN, "--dit=a.safetensors", "model.config=FOLDER before the -- names another folder"),
        (WAN, "--t5=t5.pth", "umt5_xxl_fp16.safetensors is read"),
        (WAN, "--clip=clip.safetensors", "only i2v-14B has an image encoder"),
        (FLUX, "--vae=ae.safetensors", "the autoencoder of the model's folder is used"),
        (FLUX, "", "in the script, they share one"),
        (FLUX, "--model_version=klein-4b", "training destroys its sampling in 4 steps"),
        (WAN, f"{A14B} --dit=low_noise", "at its own noise levels, with the limit 875"),
        (WAN, "--network_weights=a.safetensors --network_dim=8", "ranks, alphas and layers are those of"),
    ],
)
def test_what_differs_is_noted(script: str, words: str, text: str) -> None:
    assert text in notes(script, *words.split())


@pytest.mark.parametrize(
    ("script", "words", "where", "text"),
    [
        (FLUX, "--model_version=original", "--model_version", "is for another model"),
        (QWEN, "--model_version=layered", "--model_version", "needs Qwen-Image-Layered"),
        (WAN, "--task=i2v-A14B", "--task", "i2v-A14B has two transformers"),
        (WAN, "--task=flf2v-14B", "--task", "needs Wan first and last frame to video"),
        (WAN, "--task=t2v-14B-FC", "--task", "needs Wan Fun Control"),
        (WAN, "--network_module=networks.lora", "--network_module", "is for another model"),
        (WAN, "--dit=", "--dit", "has an empty value"),
    ],
)
def test_what_is_missing_is_refused(script: str, words: str, where: str, text: str) -> None:
    named = {one.where: one.message for one in problems(script, *words.split())}
    assert text in named[where]


def test_missing_model_and_network_are_named() -> None:
    words = ["zimage_train_network.py", f"--dataset_config={DATA}", "--optimizer_type=AdamW", "--output_dir=out"]
    with pytest.raises(RecipeError) as caught:
        DIALECT.translate(words, Launched())
    assert [(one.where, one.code) for one in caught.value.problems] == [
        ("--dit", "E1017"),
        ("--network_module", "E1017"),
    ]


@pytest.fixture
def clips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The option of a data set of clips."""
    monkeypatch.chdir(tmp_path)
    text = '[general]\ncaption_extension = ".txt"\n[[datasets]]\nvideo_directory = "films"\ntarget_frames = [17]\n'
    Path("clips.toml").write_text(text, "utf-8")
    return "--dataset_config=clips.toml"


def test_image_to_video_models_have_their_files(clips: str) -> None:
    encoders = ("--t5=t5.safetensors", "--clip=clip_vision_h.safetensors")
    values = settings(WAN, clips, "--task=i2v-14B", "--dit=i2v.safetensors", *encoders)
    expected = {
        "model.path": "i2v.safetensors", "model.config": "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers",
        "model.over": ["t5.safetensors", "clip_vision_h.safetensors"], "model.train": ["denoiser"],
        "data.format": "videofolder", "data.clips.frames": 17,
    }  # fmt: skip
    assert {path: values[path] for path in expected} == expected
    values = settings(WAN, clips, "--task=i2v-A14B", "--dit=wan2.2_i2v_low_noise_14B_fp16.safetensors", *encoders)
    expected = {
        "model.config": "Wan-AI/Wan2.2-I2V-A14B-Diffusers", "model.over": ["t5.safetensors"],
        "model.train": ["denoiser_2"], "model.adapter.targets": ["denoiser_2/blocks.*"],
    }  # fmt: skip
    assert {path: values[path] for path in expected} == expected
    assert "the image encoder of the model's folder is used" in notes(WAN, clips, "--task=i2v-14B", "--clip=clip.pth")
    assert "with the limit 900" in notes(WAN, clips, "--task=i2v-A14B", "--dit=high_noise")
    [problem] = problems(WAN, "--task=i2v-14B")
    assert problem.where == "datasets.0.image_directory in data.toml"
    assert "--task=i2v-14B continues the first frame of clips" in problem.message


def test_previews_of_image_to_video_models_continue_images(clips: str) -> None:
    own = (clips, "--task=i2v-14B", "--sample_every_n_epochs=1", "--sample_prompts=p.txt")
    Path("p.txt").write_text("a fox --i a.png --f 17\na cat --i b.png --f 17\n", "utf-8")
    values = settings(WAN, *own)
    assert (values["sample.conditions.first_frame"], values["sample.clip.frames"]) == (["a.png", "b.png"], 17)
    assert "image_path" not in notes(WAN, *own)
    for text, words in (
        ("a fox --f 17\n", "has a prompt without --i, and i2v-14B"),
        ("a --i a.png\n", "has no length"),
    ):
        Path("p.txt").write_text(text, "utf-8")
        [problem] = problems(WAN, *own)
        assert words in problem.message
