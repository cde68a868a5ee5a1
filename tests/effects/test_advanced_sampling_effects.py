"""Rows of the section `sample`: noise levels, the unconditional prediction, micro-conditioning, images to start
from, and a second model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion.noise import normal
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.families.base import posterior_sample
from mezzotint.families.sdxl import Family
from mezzotint.sampling import sample as sampling
from mezzotint.sampling.image_files import read_record
from mezzotint.sampling.sigmas import compute_sigmas
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SDXL_SIZES, SampleSettings
from mezzotint.stages import Framing, TextEmbedding
from mezzotint.tasks.sample import sample as command
from support.model_export import export_model, load_model

TABLE = Schedule.scaled_linear()


class Sampled:
    """One image of the command. seen: of each call of a denoiser, its text width and its timesteps. told: the numbers
    of each call. texts: its text states, negatives first."""

    def __init__(self, place: Path, out: Path, words: tuple[str, ...], patch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, float]] = []
        self.told: list[Tensor] = []
        self.texts: list[TextEmbedding] = []
        self.x: list[Tensor] = []
        plain_condition, plain_predict = Family.condition, Family.predict

        def condition(family: Family, text: TextEmbedding, batch: Any, framing: Framing | None = None) -> Any:
            described = plain_condition(family, text, batch, framing)
            assert described.vector is not None
            self.told.append(described.vector)
            self.texts.append(text)
            return described

        def predict(family: Family, noised: Any, described: Any) -> Tensor:
            self.seen.append((described.text.states.shape[-1], float(noised.model_t[0])))
            self.x.append(noised.model_input)
            return plain_predict(family, noised, described)

        patch.setattr(Family, "condition", condition)
        patch.setattr(Family, "predict", predict)
        usual = ("--prompt=a red circle", "--size=32x32", "--steps=4", "--guidance=1", "--solver=euler")
        names = {word.partition("=")[0] for word in words}
        kept = [word for word in usual if word.partition("=")[0] not in names]
        assert command.run([str(place), *kept, "run.device=cpu", f"--out={out}", *words]) == 0
        [path] = [path for path in out.glob("*.png") if not path.name.startswith("contact")]
        with Image.open(path) as image:
            self.pixels, self.facts = np.asarray(image), read_record(image)

    @property
    def timesteps(self) -> list[float]:
        return [t for _, t in self.seen]


@pytest.fixture
def sample_image(sdxl_folder: Path, tmp_path: Path) -> Callable[..., Sampled]:
    def make(*words: str) -> Sampled:
        with pytest.MonkeyPatch.context() as patch:
            return Sampled(sdxl_folder, tmp_path / f"{len(list(tmp_path.iterdir()))}", words, patch)

    return make


@pytest.fixture(scope="module")
def refiner(refiner_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small refiner with weights."""
    folder = tmp_path_factory.mktemp("second") / "refiner"
    settings = ModelSettings(family="sdxl", path=refiner_folder, weights="random")
    return export_model(load_model(Family, settings), folder)


def nearest_timestep(sigma: float) -> int:
    return int((TABLE.sigma - sigma).abs().argmin())


# breaks if the sampler's levels are always those of the schedule, or the PNG does not record them
@pytest.mark.effect("sample.sigmas")
def test_sigmas_are_the_visited_noise_levels(sample_image: Callable[..., Sampled]) -> None:
    usual, karras, edm = sample_image(), sample_image("sample.sigmas=karras"), sample_image("sample.sigmas=edm")
    assert usual.timesteps == [751, 501, 251, 1]
    low, high = float(TABLE.sigma[0]), float(TABLE.sigma[-1])
    ramp = [(high ** (1 / 7) + k / 3 * (low ** (1 / 7) - high ** (1 / 7))) ** 7 for k in range(4)]
    assert karras.timesteps == [nearest_timestep(sigma) for sigma in ramp]
    assert edm.timesteps[0] == 999, "80 is above the highest level of the schedule, which is used instead"
    assert "sigmas" not in usual.facts
    assert (karras.facts["sigmas"], edm.facts["sigmas"]) == ("karras", "edm")
    with pytest.raises(RecipeError, match=r"pndm visits .* sample.sigmas=karras needs one of ddim, euler") as caught:
        sample_image("sample.sigmas=karras", "--solver=pndm")
    assert caught.value.code == "E1070"


# breaks if Stability's timesteps start below the last one, or are rounded to the first
@pytest.mark.effect("sample.timestep_spacing")
def test_stability_spacing_is_even_from_the_last_timestep(sample_image: Callable[..., Sampled]) -> None:
    assert sample_image("--spacing=stability").timesteps == [999, 749, 499, 249]


# breaks if a bound has no effect, or is accepted for levels without such bounds
@pytest.mark.effect("sample.sigma_min")
@pytest.mark.effect("sample.sigma_max")
@pytest.mark.effect("sample.rho")
def test_sigma_bounds_and_rho_shape_the_levels() -> None:
    def drawn_levels(**options: Any) -> list[float]:
        words = [f"sample.{name}={value}" for name, value in options.items()]
        settings = read_text("schema: 1", "x", ["sample.sigmas=edm", *words]).recipe.sample
        return [float(f"{float(s):.4g}") for s in compute_sigmas(settings, TABLE, "epsilon", 3)]

    assert drawn_levels() == [80.0, 2.515, 0.002, 0.0]
    assert drawn_levels(sigma_min=0.02) == [80.0, 4.046, 0.02, 0.0]
    assert drawn_levels(sigma_max=10) == [10.0, 0.4803, 0.002, 0.0]
    assert drawn_levels(rho=1) == pytest.approx([80.0, 40.0, 0.002, 0.0], rel=1e-3)
    with pytest.raises(RecipeError, match=r"have no effect with sample\.sigmas=schedule"):
        read_text("schema: 1", "x", ["sample.rho=3"])
    with pytest.raises(RecipeError, match=r"must be below sample\.sigma_max"):
        read_text("schema: 1", "x", ["sample.sigmas=edm", "sample.sigma_min=5", "sample.sigma_max=2"])
    with pytest.raises(RecipeError, match="noise levels would go") as caught:
        compute_sigmas(SampleSettings(sigmas="karras", sigma_min=20.0), TABLE, "epsilon", 3)
    assert caught.value.code == "E1070"


# breaks if the base model always uses an encoded empty caption as unconditional, or silently ignores a negative prompt
@pytest.mark.effect("sample.unconditional")
def test_unconditional_selects_zeros_or_empty_caption(sample_image: Callable[..., Sampled]) -> None:
    def away(*words: str) -> tuple[bool, str | None]:
        drawn = sample_image("--guidance=3", "--steps=1", *words)
        text = drawn.texts[0]
        assert text.pooled is not None
        zeros = [not bool(part[0].any()) for part in (text.states, text.pooled)]
        assert zeros[0] == zeros[1]
        assert bool(text.states[1].any())
        return zeros[0], drawn.facts.get("unconditional")

    assert away() == (True, "zeros"), "as in the model's folder"
    assert away("--negative=blurred") == (False, None)
    assert away("--negative=blurred", "sample.unconditional=zeros") == (True, "zeros")
    assert away("sample.unconditional=caption") == (False, "caption")


# breaks if nothing is clamped, or by another quantile
@pytest.mark.effect("sample.thresholding.ratio")
@pytest.mark.effect("sample.thresholding.max")
def test_thresholding_bounds_the_predicted_latents(sample_image: Callable[..., Sampled]) -> None:
    few = "--steps=2"
    ways = {
        "none": sample_image(few),
        "cut": sample_image(few, "sample.thresholding.ratio=0.9"),
        "tighter": sample_image(few, "sample.thresholding.ratio=0.1"),
        "wide": sample_image(few, "sample.thresholding.ratio=0.99", "sample.thresholding.max=3"),
        "wide, tighter": sample_image(few, "sample.thresholding.ratio=0.9", "sample.thresholding.max=3"),
    }
    pixels = {name: drawn.pixels.tobytes() for name, drawn in ways.items()}
    assert pixels["cut"] == pixels["tighter"], "with a maximum of 1 the share has no effect"
    assert len(set(pixels.values())) == 4
    assert ways["wide"].facts["thresholding.max"] == "3.0"
    with pytest.raises(RecipeError, match="leave one out"):
        sample_image("sample.thresholding.ratio=0.9", "--rescale=0.7")


# breaks if the model gets other sizes, in another order, or the refiner's scores are fixed
@pytest.mark.effect("sample.micro_conditioning.original_size")
@pytest.mark.effect("sample.micro_conditioning.target_size")
@pytest.mark.effect("sample.micro_conditioning.crop_top_left")
def test_micro_conditioning_reaches_the_model(sample_image: Callable[..., Sampled]) -> None:
    assert sample_image("--steps=1", "--size=64x32").told[0].tolist() == [[32, 64, 0, 0, 32, 64]]
    drawn = sample_image(
        "--steps=1", "sample.micro_conditioning.original_size=[300, 200]",
        "sample.micro_conditioning.target_size=[100, 90]", "sample.micro_conditioning.crop_top_left=[5, 7]",
    )  # fmt: skip
    assert drawn.told[0].tolist() == [[200, 300, 5, 7, 90, 100]]
    assert drawn.facts["micro_conditioning.crop_top_left"] == "[5, 7]"
    named = sample_image("--steps=1", "sample.micro_conditioning.original_size=sdxl-1.46")
    assert named.told[0].tolist()[0][:2] == [832, 1216]


# breaks if the second model is not used, gets other scores, or starts or ends at another step
@pytest.mark.effect("sample.refiner.path")
@pytest.mark.effect("sample.refiner.guidance")
@pytest.mark.effect("sample.micro_conditioning.aesthetic_score")
@pytest.mark.effect("sample.micro_conditioning.negative_aesthetic_score")
def test_refiner_runs_the_last_steps(sample_image: Callable[..., Sampled], refiner: Path) -> None:
    words = (f"sample.refiner.path={refiner}", "sample.refiner.strength=0.5", "--spacing=stability")
    drawn = sample_image(*words)
    # five levels, of which the last is 0: the second model has the lowest two others
    assert drawn.timesteps == [999, 749, 499, 249]
    widths = [width for width, _ in drawn.seen]
    assert widths == [80, 80, 80, 48], "the base model has two text encoders, the refiner only the second"
    assert drawn.told[-1].tolist() == [[32, 32, 0, 0, 2.5], [32, 32, 0, 0, 6.0]]
    alone = sample_image(*words, "sample.refiner.guidance=1", "sample.micro_conditioning.aesthetic_score=7")
    assert alone.told[-1].tolist() == [[32, 32, 0, 0, 7.0]]
    other = sample_image(*words, "sample.micro_conditioning.negative_aesthetic_score=1")
    assert other.told[-1][0, -1] == 1.0
    assert drawn.facts["refiner.path"] == "refiner"
    assert len(bytes.fromhex(drawn.facts["refiner.model"])) == 32


# breaks if the share differs, or the second model adds noise again
@pytest.mark.effect("sample.refiner.strength")
@pytest.mark.effect("sample.refiner.finish")
def test_refiner_continues_or_starts_from_new_noise(
    sample_image: Callable[..., Sampled], refiner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[tuple[Tensor, Tensor, int]] = []
    plain = sampling.run_solver

    def watched(sampler: Any, x: Tensor, *rest: Any) -> Tensor:
        latents = plain(sampler, x, *rest)
        handed.append((x, latents, len(sampler) + 1))
        return latents

    monkeypatch.setattr(sampling, "run_solver", watched)
    words = (f"sample.refiner.path={refiner}", "--spacing=stability")
    sample_image(*words, "sample.refiner.strength=0.6")
    (_, left, _), (begun, _, count) = handed
    assert torch.equal(left, begun), "the same latents, with their noise"
    assert count == 3, "three of five levels, the last is 0"
    handed.clear()
    drawn = sample_image(*words, "sample.refiner.strength=0.6", "sample.refiner.finish=false")
    assert drawn.timesteps == [999, 749, 499, 249, 499, 249]
    (start, clean, _), (begun, _, _) = handed
    fresh = (begun - clean) / float(TABLE.sigma[499])
    assert 0.8 < float(fresh.std()) < 1.2
    assert float((fresh * start).mean() / start.std()) < 0.3, "not the initial noise of the first model"
    with pytest.raises(RecipeError, match="leaves nothing to the first model"):
        sample_image(*words, "sample.image=x.png", "sample.strength=0.1")


# breaks if sampling does not start from the image, starts at the wrong level, or has another size
@pytest.mark.effect("sample.image")
@pytest.mark.effect("sample.strength")
def test_initial_image_and_strength(sample_image: Callable[..., Sampled], tmp_path: Path, sdxl_folder: Path) -> None:
    path = tmp_path / "begin.png"
    rows = np.linspace(0, 255, 70, dtype=np.uint8)
    Image.fromarray(np.repeat(rows[None, :, None], 150, 0).repeat(3, 2)).save(path)
    words = (f"sample.image={path}", "--spacing=stability")
    none = sample_image(*words, "sample.strength=0", "--size=64x128")
    assert none.timesteps == []
    family = Family.of(ModelSettings(family="sdxl", path=sdxl_folder))
    pixels = torch.from_numpy(np.array(Image.open(path).resize((64, 137), Image.Resampling.LANCZOS))[4:132])
    moments = family.encode_media(pixels.permute(2, 0, 1)[None].float() / 127.5 - 1)
    address = torch.from_numpy(np.array([draws.key(0, "sample-image", 0)], dtype=np.uint64).view(np.int64))
    latents = posterior_sample(moments, normal(address, (4, *moments.shape[2:])))
    expected = sampling.as_bytes(family.decode_media(latents)[0]).astype(int)
    assert np.abs(expected - none.pixels).max() <= 1, "the image, through the autoencoder"
    half = sample_image(*words, "sample.strength=0.75")
    assert half.timesteps == [499, 249], "three of five levels, the last is 0"
    assert half.pixels.shape == (32, 32, 3)
    assert (half.facts["image"], half.facts["strength"]) == (str(path), "0.75")
    assert half.facts["image_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    scale = math.sqrt(1 + float(TABLE.sigma[499]) ** 2)
    assert 0.5 < float(half.x[0].std()) * scale / float(TABLE.sigma[499]) < 2, "noise of the start level"
    (tmp_path / "broken.png").write_text("no image")
    with pytest.raises(RecipeError, match="use another image") as caught:
        sample_image(f"sample.image={tmp_path / 'broken.png'}")
    assert caught.value.code == "E1091"


# breaks if a name means another size, or width and height are exchanged
@pytest.mark.effect("sample.size")
def test_size_accepts_sdxl_names() -> None:
    def size(word: str) -> Any:
        return read_text("schema: 1", "x", [f"sample.size={word}"]).recipe.sample.size

    assert size("sdxl-1.46") == (1216, 832)
    assert all(size(f"sdxl-{name}") == sides for name, sides in SDXL_SIZES.items())
    # names are width over height, except for the two small squares
    named = {name: sides for name, sides in SDXL_SIZES.items() if "_" not in name}
    assert all(abs(w / h - float(name)) < 0.02 for name, (w, h) in named.items())
    with pytest.raises(RecipeError, match="there is no size sdxl-9"):
        size("sdxl-9")
