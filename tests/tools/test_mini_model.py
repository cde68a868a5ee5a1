"""mezzotint-mini: its tokenizer, the start of its training, the shipped folder, and its figures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from diffusers import StableDiffusionPipeline
from transformers import CLIPTokenizer

from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import shipped_folder
from mini import make_model, make_tokenizer, measure, record, world
from mini.card import card

TEXTS = [text for index in range(300) for text in world.captions(world.scene(index, 5))]
TEXTS += [text for text, _ in world.wug_prompts(30)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> CLIPTokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer.write_tokenizer(folder)
    return CLIPTokenizer.from_pretrained(folder, local_files_only=True)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("start")
    config = json.loads((shipped_folder("tiny-sd") / "vae" / "config.json").read_text())
    vae = components.random_network("vae", config, 0, "vae", where=root / "vae")
    components.write("vae", vae.state_dict(), config, root / "vae", "fp32")
    make_model.start(root / "vae", root / "model")
    return root / "model"


def test_every_word_of_the_world_is_one_token(tokenizer: CLIPTokenizer) -> None:
    words = make_tokenizer.world_words()
    assert len(words) > 40
    assert {word: len(tokenizer(word).input_ids) for word in words} == dict.fromkeys(words, 3)


def test_every_caption_fits_and_round_trips(tokenizer: CLIPTokenizer) -> None:
    assert tokenizer.model_max_length == make_tokenizer.LENGTH
    for text in TEXTS:
        ids = tokenizer(text).input_ids
        assert len(ids) <= make_tokenizer.LENGTH, text
        assert tokenizer.decode(ids, skip_special_tokens=True).replace(" ,", ",") == text


def test_other_text_is_split_and_round_trips(tokenizer: CLIPTokenizer) -> None:
    for text in ("blick", "xylophone", "münchen 7", "猫"):
        pieces = tokenizer(text).input_ids
        assert len(pieces) > 3
        assert tokenizer.decode(pieces, skip_special_tokens=True) == text


def test_trained_word_is_one_token_unused_by_other_captions(tokenizer: CLIPTokenizer) -> None:
    (number,) = tokenizer("wug").input_ids[1:-1]
    assert not any(number in tokenizer(text).input_ids for text in TEXTS if world.WUG not in text)


def test_tokenizer_is_written_deterministically(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_tokenizer.write_tokenizer(tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["merges.txt", "special_tokens_map.json", "tokenizer_config.json", "vocab.json"]
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in files)


@pytest.mark.slow
def test_start_model_depends_on_the_seed_and_keeps_the_vae(start: Path, tmp_path: Path) -> None:
    make_model.start(start / "vae", tmp_path / "again")
    make_model.start(start / "vae", tmp_path / "other", seed=2)
    weights = {"unet": "diffusion_pytorch_model", "text_encoder": "model", "vae": "diffusion_pytorch_model"}
    for component, stem in weights.items():
        name = Path(component, f"{stem}.safetensors")
        assert (tmp_path / "again" / name).read_bytes() == (start / name).read_bytes()
        assert ((tmp_path / "other" / name).read_bytes() == (start / name).read_bytes()) == (component == "vae")


def test_start_model_fits_the_size_limit(start: Path) -> None:
    family = Family.of(ModelSettings(path=start))
    assert family.prediction == "v"
    assert family.encode_text(["a red circle"]).states.shape == (1, make_tokenizer.LENGTH, make_model.WIDTH)
    counts = {part: sum(p.numel() for p in module.parameters()) for part, module in family.parts().items()}
    vae, headers = 1_022_311, 60_000
    assert 2 * (counts["denoiser"] + counts["text_encoder"] + vae) + headers <= make_model.LARGEST


def test_shipped_model_is_fp16_and_opens_in_diffusers(start: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    figures.write_text(json.dumps(_figures()))
    size = make_model.ship(start, figures, tmp_path / "model")
    header = sorted((tmp_path / "model").rglob("*.safetensors"))
    assert size == sum(path.stat().st_size for path in header) < make_model.LARGEST
    for dtype in (torch.float32, torch.float16):
        options = {} if dtype is torch.float32 else {"torch_dtype": dtype}
        pipeline = StableDiffusionPipeline.from_pretrained(
            tmp_path / "model", local_files_only=True, safety_checker=None, **options
        )
        assert pipeline.scheduler.config.prediction_type == "v_prediction"
        assert {part.dtype for part in (pipeline.unet, pipeline.text_encoder, pipeline.vae)} == {dtype}
    text = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert "| 500 seen | average | 96.0 % | 91.0 % |" in text


def test_true_images_are_judged_right_and_others_wrong() -> None:
    for kind in ("seen", "held_out", "relations", "counts"):
        prompts = world.prompts(kind, 24, 3)  # type: ignore[arg-type]
        true = [np.asarray(world.draw(scene)) for _, scene in prompts]
        assert measure.judged(true, prompts, kind)["all"] > 0.95  # type: ignore[arg-type]
        turned = true[1:] + true[:1]
        assert measure.judged(turned, prompts, kind)["all"] < 0.2  # type: ignore[arg-type]


def test_untrained_model_keeps_only_the_vae(start: Path, tmp_path: Path) -> None:
    trained = measure.load(start)
    untrained = measure.load(start, untrained=True)
    for part in ("denoiser", "text_encoder", "vae"):
        one, two = (next(iter(f.parts()[part].state_dict().values())) for f in (trained, untrained))
        assert torch.equal(one, two) == (part == "vae")


def test_measuring_twice_generates_the_same_images(start: Path) -> None:
    settings = argparse.Namespace(seed=1, steps=2, guidance=2.0, solver="ddim", batch=3)
    family, prompts = measure.load(start), world.prompts("seen", 4, 1)
    one, two = (list(measure.images(family, prompts, settings)) for _ in range(2))
    assert [image.shape for image in one] == 4 * [(64, 64, 3)]
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    single = next(iter(measure.images(family, prompts, argparse.Namespace(**{**vars(settings), "batch": 1}))))
    assert np.abs(single.astype(int) - one[0]).max() <= 1


def test_card_shows_every_kind_and_model() -> None:
    text = card(_figures(), {"unet": 2_540_324, "text_encoder": 416_000, "vae": 1_000_000})
    assert "UNet 2.54 M, text encoder 0.42 M, VAE 1.00 M; in half precision 7.9 MB" in text
    assert "ddim, 20 steps, guidance 3, seed 7" in text
    for words in ("| 500 seen | average |", "| 200 held out | untrained |", "| random choice | 12.5 % |", "Apache-2.0"):
        assert words in text


def test_record_keeps_the_curve_and_no_paths(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    recipe = {
        "model": {"path": str(tmp_path / "mini-start")},
        "data": {"path": ["~/mini-world"]},
        "run": {"steps": 500},
    }
    (run / "recipe.yaml").write_text("# a comment\n" + json.dumps(recipe))
    (run / "environment.json").write_text("{}")
    (run / "history.jsonl").write_text("")
    steps = [{"step": n, "loss": 2.0 if n <= 250 else 1.0, "norm": 0.5, "images_per_s": 9.0} for n in range(1, 501)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in [*steps, {"step": 500}]))
    record.record(run, tmp_path / "kept")
    kept = yaml.safe_load((tmp_path / "kept" / "recipe.yaml").read_text())
    assert kept == {"model": {"path": "mini-start"}, "data": {"path": ["mini-world"]}, "run": {"steps": 500}}
    lines = (tmp_path / "kept" / "curve.csv").read_text().splitlines()
    assert lines[0] == "step,loss,norm,images_per_s"
    assert len(lines) == 101
    assert (lines[1], lines[-1]) == ("5,2,0.5,9", "500,1,0.5,9")


def _figures() -> dict[str, object]:
    row = {"colour": 0.96, "shape": 0.91, "position": 0.955, "relation": None, "count": 1.0, "all": 0.87}
    by_kind = {"seen": {"prompts": 500, **row}, "held_out": {"prompts": 200, **row}}
    settings = {"solver": "ddim", "steps": 20, "guidance": 3.0, "seed": 7}
    return {"settings": settings, "chance": measure.CHANCE, "models": {"average": by_kind, "untrained": by_kind}}
