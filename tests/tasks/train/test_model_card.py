"""Model cards: what they contain and leave out, hostile values, and their code, which is run on small exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard as HubCard

import mezzotint as mz
from mezzotint import registry
from mezzotint.adapters.names import LayerNames
from mezzotint.adapters.networks import AdapterShape
from mezzotint.adapters.trained import TrainedAdapter
from mezzotint.board.reading import runs
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.adapter import AdapterSettings
from mezzotint.tasks.reading import hub
from mezzotint.tasks.train.model_card import Export, ModelCard, describe_adapter, escape
from mezzotint.weights.folder import publishing
from mezzotint.weights.folder.model_folder import shipped_folder

HOSTILE = "a\n---\nb | c <script>alert(1)</script> [x](http://y) `z` \"q\" 'r' ```\n```\n# d \x1b[31m"
ONE_LINE = " ".join(HOSTILE.replace("\x1b", "").split())
CACHED = Path("/home/jane/.cache/huggingface/hub/models--stabilityai--sd-turbo/snapshots/abc123/unet")
QUICK = (
    "run.steps=2", "run.tensorboard=false", "run.preview.every=null", "run.save.every=null", "data.path=shapes",
    "data.resolution=32", "data.buckets.step=32", "data.batch_size=1", "optim.ema.rule=none",
)  # fmt: skip


def card(settings: dict[str, Any] | None = None, **changes: Any) -> ModelCard:
    recipe = Recipe.model_validate({"model": {"path": "/home/jane/models/base.safetensors"}} | (settings or {}))
    facts: dict[str, Any] = {
        "step": 500, "last_step": 1000, "epoch": 3, "loss": 0.125, "held_out": {}, "is_average": False,
        "adapter": "", "is_video": False, "references": 0, "fills": False,
    }  # fmt: skip
    return ModelCard(recipe=recipe, **facts | changes)


def header(text: str) -> dict[str, Any]:
    """The header as the hub reads it."""
    return dict(HubCard(text, ignore_metadata_errors=False).data.to_dict())


def test_header_has_the_entries_of_the_hub_and_those_of_the_recipe() -> None:
    settings = {
        "model": {"path": CACHED, "adapter": {"kind": "lora", "rank": 8}},
        "data": {"captions": {"trigger": "sks"}},
        "run": {"export": {"card": {"license": "other", "license_name": "mine", "tags": ["cats", "lora"]}}},
    }
    text = card(settings, adapter="lora of rank 8").render(Export("adapter", adapter_files=["a.safetensors"]))
    assert header(text) == {
        "base_model": "stabilityai/sd-turbo", "base_model_relation": "adapter", "library_name": "diffusers",
        "pipeline_tag": "text-to-image", "instance_prompt": "sks", "license": "other", "license_name": "mine",
        "tags": ["text-to-image", "mezzotint", "sd", "diffusers", "lora", "cats"],
    }  # fmt: skip
    assert "An adapter (lora of rank 8) for denoiser, starting from stabilityai/sd-turbo." in text
    assert "jane" not in text


def test_what_is_not_known_is_left_out() -> None:
    text = card(loss=None).render(Export("trained_parts"))
    assert header(text) == {"pipeline_tag": "text-to-image", "tags": ["text-to-image", "mezzotint", "sd"]}
    for word in ("license", "loss", "data |", "hash", "versions", "device", "None", "null", "nan", "## Use"):
        assert word not in text, word


def test_figures_are_those_of_the_run() -> None:
    text = card(
        held_out={100: 0.3, 200: 0.2, 500: 0.25},
        is_average=True,
        data={"samples": 1200, "fingerprint": "d1"},
        weights={"denoiser": "f1"},
        environment={"mezzotint": "0.1.0", "python": "3.11", "packages": {"torch": "2.10", "x": None}, "device": "cpu"},
        description=[["length", "1,000 steps"], ["data", "from /home/jane/photos"], ["model", "sd from /home/jane/m"]],
    ).render(Export("model"))
    for row in (
        "| progress | 500 of 1,000 steps, epoch 3 |", "| training loss | 0.1250 (smoothed) at step 500 |",
        "| held-out loss | 0.2500 at step 500; lowest 0.2000 at step 200 |",
        "| data | 1,200 samples; hash of images and captions `d1` |", "| base: denoiser | hash `f1` |",
        "| length | 1,000 steps |", "| device | cpu, 1 process |", "| versions | python 3.11, torch 2.10 |",
    ):  # fmt: skip
        assert f"{row}\n" in text
    assert "These are the averaged weights (EMA)." in text
    assert "jane" not in text


def test_settings_are_those_that_change_the_result_without_paths_and_prompts() -> None:
    settings = {
        "model": {"path": "/home/jane/base", "vae": "/home/jane/vae.safetensors"},
        "data": {
            "sets": [{"path": "/home/jane/anna", "repeats": 3}], "cache": {"path": "/home/jane/cache"},
            "captions": {"trigger": "sks"}, "prior": {"path": "/home/jane/dogs", "class_prompt": "a dog of jane"},
        },
        "optim": {"lr": 0.5},
        "run": {"folder": "/home/jane/run", "seed": 7, "log_every": 3},
        "sample": {"prompts": ["jane"]},
    }  # fmt: skip
    text = card(settings).render(Export("model"))
    block = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    assert yaml.safe_load(block[1]) == {
        "model": {"path": "base", "vae": "vae.safetensors"},
        "data": {"sets": [{"repeats": 3.0}], "captions": {"trigger": "sks"}},
        "optim": {"lr": 0.5},
        "run": {"seed": 7},
    }
    assert "jane" not in text
    assert "anna" not in text


@pytest.mark.parametrize("contents", ["model", "adapter", "trained_parts"])
def test_hostile_values_are_shown_and_change_nothing(contents: Any) -> None:
    settings = {
        "model": {"path": f"/x/{HOSTILE}"},
        "data": {"captions": {"trigger": ONE_LINE}},
        "run": {"export": {"card": {"license": HOSTILE, "author": f"---\n{HOSTILE}"}}},
    }
    files = ["a.safetensors"] if contents == "adapter" else []
    described = card(
        settings, description=[["length", HOSTILE]], environment={"device": HOSTILE}, weights={HOSTILE: HOSTILE}
    )
    text = described.render(Export(contents, pipeline="StableDiffusionPipeline", adapter_files=files))
    assert header(text)["instance_prompt"] == ONE_LINE
    assert header(text)["license"] == " ".join(HOSTILE.split())
    outside = re.sub(r"(?ms)^(`{3,})\w+\n.*?^\1$", "", text.partition("\n---\n")[2])
    assert "<script" not in outside
    assert re.search(r"(?<!\\)\[x", outside) is None
    assert [line for line in outside.splitlines() if line.startswith("#")] == (
        ["# run"] + ["## Use"] * (contents != "trained_parts") + ["## Training"]
    )
    table = [line for line in outside.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {3}
    for block in re.findall(r"(?ms)^`{3,}python\n(.*?)^`{3,}$", text):
        compile(block, "card", "exec")


def test_escaped_text_is_one_line() -> None:
    assert escape("a_b *c* <d>\n# e | f \x00") == r"a\_b \*c\* &lt;d&gt; \# e \| f"
    assert escape("https://x WWW.x a@x $1$: b") == r"https\://x WWW\.x a\@x \$1\$: b", "no links, no formulas"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (CACHED, "stabilityai/sd-turbo"),
        (Path("/c/models--a.b--c--d/snapshots/1/x.safetensors"), "a.b/c--d"),
        (Path("/models/sd-turbo"), None),
        (Path("models--a--b"), None),
    ],
)
def test_hub_id_of_a_cached_model(path: Path, name: str | None) -> None:
    assert hub.id_of(path) == name


def test_code_passes_the_images_that_a_model_takes() -> None:
    edits = card(references=2).render(Export("model", pipeline="Flux2KleinPipeline"))
    assert 'image=[load_image("image-1.png"), load_image("image-2.png")])' in edits
    assert header(edits)["pipeline_tag"] == "image-to-image"
    fills = card(references=1, fills=True).render(Export("model", pipeline="StableDiffusionInpaintPipeline"))
    assert 'image=load_image("image-1.png"), mask_image=load_image("mask.png"))' in fills
    clips = card(is_video=True).render(Export("adapter", adapter_files=["a_low_noise.safetensors"]))
    assert "export_to_video(pipeline('a photograph').frames[0], \"clip.mp4\")" in clips
    assert header(clips)["pipeline_tag"] == "text-to-video"
    assert "## Use" not in card().render(Export("model", pipeline="PipelineOfAnotherPackage"))


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (AdapterShape("lora", ["a", "b"], 8), "lora of rank 8, alpha equal to the rank"),
        (AdapterShape("lora", ["a", "b"], 8, 4.0), "lora of rank 8, alpha 4"),
        (AdapterShape("lora", ["a", "b"], 8, None, {}, {"a": 1.0}), "lora of rank 8, alpha 1 to 8"),
        (AdapterShape("oft", ["a", "b"], 32), "oft in blocks of 32"),
    ],
)
def test_alpha_is_that_of_the_layers(shape: AdapterShape, text: str) -> None:
    """A file that training continues from has its own, which the recipe does not name."""
    names = LayerNames.of(registry.find("families", "sd").Family.files.tiny())
    assert describe_adapter(TrainedAdapter(AdapterSettings(), names, {}, {"denoiser": shape})) == text


@contextmanager
def in_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.chdir(folder)
        yield


def run_code(text: str, **replaced: Any) -> None:
    """Runs the code of a card with other values of variables, and two steps of the sampler."""
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    code = re.sub(r"(pipeline\('[^\n]*?')\)", r"\1, num_inference_steps=2)", block[1])
    for name, value in replaced.items():
        code = re.sub(rf"(?m)^{name} = .*", f"{name} = {value!r}", code)
    exec(compile(code, "card", "exec"), {})


def test_card_of_a_model_that_is_exported_loads_it_in_diffusers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = mz.train(mz.recipe("tiny_cpu", *QUICK, "run.export.card={license: mit}"))
    [export] = run.exports
    text = (export / "README.md").read_text()
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest["data"]["fingerprint"] in text
    assert f"{run.history['loss_avg'][-1]:.4f} (smoothed) at step 2" in text
    assert header(text)["license"] == "mit"
    assert str(tmp_path) not in text
    with in_folder(monkeypatch, export):
        run_code(text)
    assert (export / "image.png").is_file()


@pytest.mark.parametrize("recipe", ["mini-lora", "mini"])
def test_cards_of_adapters_and_learned_tokens_load_them_in_diffusers(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "data.captions.trigger=<wug>",
        "model.train=[text_encoder, denoiser, tokens]",
        "model.tokens.words={<wug>: wug}",
    ]
    run = mz.train(mz.recipe(recipe, *QUICK, *words))
    [export] = run.exports
    text = (export / "README.md").read_text()
    assert header(text)["instance_prompt"] == "<wug>"
    assert "textual_inversion" in header(text)["tags"]
    with in_folder(monkeypatch, export):
        run_code(text, base=str(shipped_folder("mezzotint-mini")))
    assert (export / "image.png").is_file()


def test_file_without_a_folder_has_its_card_beside_it_and_other_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "mine.safetensors.md").write_text("of somebody else")
    words = ["run.export.parts=trained", f"run.export.single_file_folder={shared}", "run.export.name=mine"]
    run = mz.train(mz.recipe("tiny_cpu", *QUICK, *words))
    assert sorted(path.name for path in shared.iterdir()) == [
        "mine.safetensors", "mine.safetensors-2.md", "mine.safetensors.md",
    ]  # fmt: skip
    assert (shared / "mine.safetensors.md").read_text() == "of somebody else"
    assert header((shared / "mine.safetensors-2.md").read_text())["pipeline_tag"] == "text-to-image"
    assert "The trained denoiser of a model" in (shared / "mine.safetensors-2.md").read_text()
    assert run.exports == []
    run = mz.train(mz.recipe("tiny_cpu", *QUICK, "run.name=own", "run.export.parts=trained", "run.export.name=mine"))
    assert [path.name for path in run.exports] == ["mine.safetensors"]
    assert (run.path / "exports" / "mine.safetensors.md").is_file()
    assert [one.name for one in runs.exports(run.path)] == ["mine.safetensors"]
    assert "exports/mine.safetensors\n" in (run.path / "logs" / "report.txt").read_text()


def test_published_model_keeps_a_readme_of_somebody_else(tmp_path: Path) -> None:
    export, folder = tmp_path / "export", tmp_path / "published"
    export.mkdir()
    folder.mkdir()
    for name in ("README.md", "model_index.json"):
        (export / name).write_text("new")
    (folder / "README.md").write_text("of somebody else")
    publishing.publish(export, folder)
    publishing.publish(export, folder)
    assert (folder / "README.md").read_text() == "of somebody else"
    (folder / "README.md").unlink()
    publishing.publish(export, folder)
    (export / "README.md").write_text("newer")
    publishing.publish(export, folder)
    assert (folder / "README.md").read_text() == "newer"
