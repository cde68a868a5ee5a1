"""Rows of the section `sample`: prompts and sampling of previews."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from PIL import Image

from mezzotint.errors import RecipeError
from mezzotint.sampling.image_files import read_record
from mezzotint.settings.sections.sample import SolverName
from mezzotint.training.callbacks.previews import Previews
from mezzotint.training.callbacks.progress_line import LiveLine
from mezzotint.training.progress import Progress

Prepare = Callable[..., Any]
FEW = {"run__preview__every": 1, "run__preview__weights": "raw", "sample__steps": 2, "sample__guidance": 1}


class Previewed:
    """The previews of a run before its first step. seen: the batch size and timestep of each call of the denoiser."""

    def __init__(self, ready: Any) -> None:
        self.folder = ready.folder.samples / "step-00000000"
        self.seen: list[tuple[int, float]] = []
        hook = ready.family.parts()["denoiser"].register_forward_pre_hook(self._note)
        [previews] = [o for o in ready.trainer.callbacks if isinstance(o, Previews)]
        previews.on_step(None, ready.trainer.progress)
        hook.remove()

    def _note(self, module: Any, inputs: Any) -> None:
        self.seen.append((len(inputs[0]), float(inputs[1].flatten()[0])))

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.png"))

    def pixels(self, index: int = 0) -> Any:
        return np.asarray(Image.open(self.folder / f"{index:02d}-raw.png"))

    def facts(self, index: int = 0) -> dict[str, str]:
        return read_record(Image.open(self.folder / f"{index:02d}-raw.png"))


@pytest.fixture
def preview(prepare: Prepare) -> Callable[..., Previewed]:
    def make(**settings: Any) -> Previewed:
        options = {"sample__prompts": ["a red circle"]} | FEW
        return Previewed(prepare(**options | {f"sample__{name}": value for name, value in settings.items()}))

    return make


# breaks if other prompts are sampled, fewer of them, or none by default
@pytest.mark.effect("sample.prompts")
def test_prompts_are_sampled(preview: Callable[..., Previewed]) -> None:
    drawn = preview(prompts=["a red circle", "a blue square, tiny"])
    assert drawn.names == ["00-raw.png", "01-raw.png"]
    assert [drawn.facts(i)["prompt"] for i in (0, 1)] == ["a red circle", "a blue square, tiny"]
    assert not np.array_equal(drawn.pixels(0), preview(prompts=["a blue square, tiny"]).pixels(0))
    without = preview(prompts=[])
    assert [without.facts(i)["prompt"] for i in range(4)] == [f"image number {i}" for i in range(4)]
    assert len(without.names) == 4


# breaks if guidance uses another unconditional prediction, or ignores the negative text
@pytest.mark.effect("sample.negative_prompt")
def test_negative_prompt_is_used_only_with_guidance(preview: Callable[..., Previewed]) -> None:
    empty, ugly, plain = preview(guidance=7), preview(guidance=7, negative_prompt="ugly"), preview()
    assert ugly.facts()["negative_prompt"] == "ugly"
    assert not np.array_equal(empty.pixels(), ugly.pixels())
    assert np.array_equal(preview(negative_prompt="ugly").pixels(), plain.pixels()), "without guidance it is not used"
    same = preview(guidance=7, negative_prompt="a red circle")
    difference = np.abs(same.pixels().astype(int) - plain.pixels().astype(int))
    assert difference.max() <= 1, "equal predictions: n + s · (p − n) = p"


# breaks if previews always have the training resolution
@pytest.mark.effect("sample.size")
def test_size_is_width_and_height(preview: Callable[..., Previewed]) -> None:
    assert preview(size=[64, 32]).pixels().shape == (32, 64, 3)
    assert preview(size="null").pixels().shape == (48, 48, 3)


# breaks if the noise does not depend on the seed, or depends on something else
@pytest.mark.effect("sample.seed")
def test_sample_seed_selects_the_initial_noise(preview: Callable[..., Previewed]) -> None:
    one, again, other = preview(seed=1), preview(seed=1), preview(seed=2)
    assert np.array_equal(one.pixels(), again.pixels())
    assert not np.array_equal(one.pixels(), other.pixels())


# breaks if the solver takes another number of steps
@pytest.mark.effect("sample.steps")
@pytest.mark.parametrize("steps", [1, 3])
def test_steps_counts_the_calls_of_the_denoiser(preview: Callable[..., Previewed], steps: int) -> None:
    drawn = preview(steps=steps)
    assert len(drawn.seen) == steps
    assert [t for _, t in drawn.seen] == sorted({t for _, t in drawn.seen}, reverse=True)


# breaks if guidance is missing or has another scale, or a scale of 1 takes twice the time
@pytest.mark.effect("sample.guidance")
def test_guidance_scale_moves_the_image(preview: Callable[..., Previewed]) -> None:
    results = {scale: preview(guidance=scale, steps=1) for scale in (1, 3, 9)}
    assert {scale: [n for n, _ in drawn.seen] for scale, drawn in results.items()} == {1: [1], 3: [2], 9: [2]}
    pixels = [results[scale].pixels().astype(int) for scale in (1, 3, 9)]
    nearer, further = (np.abs(p - pixels[0]).mean() for p in pixels[1:])
    assert 0 < nearer < further


# breaks if another solver is used: each has its own timesteps and its own weights of predictions
@pytest.mark.effect("sample.solver")
def test_solver_selects_the_scheduler(preview: Callable[..., Previewed], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for module, name in (
        ("ddim", "DDIMScheduler"),
        ("euler_discrete", "EulerDiscreteScheduler"),
        ("dpmsolver_multistep", "DPMSolverMultistepScheduler"),
    ):
        kind = getattr(__import__(f"diffusers.schedulers.scheduling_{module}", fromlist=[name]), name)
        monkeypatch.setattr(kind, "step", _noted(calls, name, kind.step))
    images = [preview(solver=solver, steps=3).pixels() for solver in ("ddim", "euler", "dpm++")]
    assert calls == ["DDIMScheduler"] * 3 + ["EulerDiscreteScheduler"] * 3 + ["DPMSolverMultistepScheduler"] * 3
    for a, b in ((0, 1), (1, 2), (0, 2)):
        assert not np.array_equal(images[a], images[b])


# breaks if a name selects another solver, or diffusers' own name is not accepted
@pytest.mark.slow
@pytest.mark.effect("sample.solver")
def test_every_solver_name_samples_a_different_preview(preview: Callable[..., Previewed]) -> None:
    names: tuple[str, ...] = get_args(SolverName)
    results = {name: preview(solver=name, steps=4) for name in names}
    calls = {name: len(drawn.seen) for name, drawn in results.items()}
    assert calls == dict.fromkeys(names, 4) | {"heun": 7, "dpm2": 7, "dpm2-a": 7, "pndm": 5, "dpm++-2s-a": 7}
    assert all(drawn.facts()["solver"] == name for name, drawn in results.items())
    pixels = {name: drawn.pixels().tobytes() for name, drawn in results.items()}
    same = {(a, b) for a in names for b in names if a < b and pixels[a] == pixels[b]}
    # in exact arithmetic these two take the same steps; pixels may differ by rounding
    assert same <= {("ddpm", "euler-a")}
    stock = preview(solver="EulerAncestralDiscreteScheduler", steps=4)
    assert (stock.facts()["solver"], stock.pixels().tobytes()) == ("euler-a", pixels["euler-a"])


# breaks if the contrast of the guided output does not change, or is always restored completely
@pytest.mark.effect("sample.guidance_rescale")
def test_guidance_rescale_changes_guided_images_only(preview: Callable[..., Previewed]) -> None:
    pixels = [preview(guidance=9, guidance_rescale=share).pixels().astype(int) for share in (0, 0.5, 1)]
    far, further = (np.abs(p - pixels[0]).mean() for p in pixels[1:])
    assert 0 < far < further
    assert np.array_equal(preview(guidance=1, guidance_rescale=1).pixels(), preview(guidance=1).pixels())


# breaks if the solver visits other timesteps than requested
@pytest.mark.effect("sample.timestep_spacing")
def test_timestep_spacing_selects_timesteps(preview: Callable[..., Previewed]) -> None:
    visited = {
        spacing: [round(t) for _, t in preview(timestep_spacing=spacing, steps=4).seen]
        for spacing in ("auto", "leading", "trailing", "linspace")
    }
    assert visited["auto"] == visited["leading"] == [751, 501, 251, 1]
    assert visited["trailing"] == [999, 749, 499, 249]
    assert visited["linspace"] == [999, 666, 333, 0]


# breaks if all images are always sampled together, or one by one
@pytest.mark.effect("sample.batch_size")
def test_batch_size_counts_images_per_call(preview: Callable[..., Previewed]) -> None:
    three = ["a red circle", "a blue square", "a star"]
    results = {size: preview(prompts=three, batch_size=size, steps=1) for size in (1, 2, 8)}
    assert {size: [n for n, _ in drawn.seen] for size, drawn in results.items()} == {1: [1, 1, 1], 2: [2, 1], 8: [3]}
    for place in range(3):
        difference = results[1].pixels(place).astype(int) - results[8].pixels(place).astype(int)
        assert np.abs(difference).max() <= 1


def _noted(calls: list[str], name: str, step: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(name)
        return step(self, *arguments, **named)

    return noted


# breaks if previews are sampled with other settings than those written into the image
def test_image_records_its_sampling_settings(preview: Callable[..., Previewed]) -> None:
    facts = preview(seed=3, steps=2, guidance=2.5, solver="euler", size=[32, 32]).facts()
    expected = {"seed": "3", "steps": "2", "guidance": "2.5", "solver": "euler", "size": "32x32"}
    assert {name: facts[name] for name in expected} == expected


# breaks if only one of several scales is sampled, or their noise differs
@pytest.mark.effect("sample.guidance")
def test_each_prompt_is_sampled_at_each_guidance_scale(preview: Callable[..., Previewed]) -> None:
    several = preview(prompts=["a red circle", "a blue square"], guidance=[1, 4])
    assert [several.facts(i)["guidance"] for i in range(4)] == ["1.0", "4.0", "1.0", "4.0"]
    assert [several.facts(i)["prompt"][2:5] for i in range(4)] == ["red", "red", "blu", "blu"]
    for index, scale in ((0, 1), (1, 4)):
        alone = preview(prompts=["a red circle", "a blue square"], guidance=scale)
        for pixels, expected in (
            (several.pixels(index), alone.pixels(0)),
            (several.pixels(2 + index), alone.pixels(1)),
        ):
            # sums of another batch size may have another order: a value between two levels may round either way
            assert np.abs(pixels.astype(int) - expected.astype(int)).max() <= 1
    assert np.abs(several.pixels(0).astype(int) - several.pixels(1).astype(int)).max() > 3


# --- files of prompts -------------------------------------------------------------------------------------------------


class FromFile:
    """Previews of a run whose prompts are in a file; `look` samples those of a step. said: warnings."""

    def __init__(self, prepare: Prepare, path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.path = path
        self.said: list[str] = []
        monkeypatch.setattr(LiveLine, "say", lambda _, text: self.said.append(text))
        self.ready = prepare(**FEW | {"sample__prompt_file": path} | settings)
        self.said.clear()
        [self.previews] = [o for o in self.ready.trainer.callbacks if isinstance(o, Previews)]

    def write(self, content: Any) -> None:
        self.path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), "utf-8")

    def on_step(self, step: int) -> list[dict[str, str]]:
        """The metadata of the images of a step."""
        self.previews.on_step(None, Progress(step=step, last_step=99))
        folder = self.ready.folder.samples / f"step-{step:08d}"
        return [read_record(Image.open(path)) for path in sorted(folder.iterdir())]

    def pixels(self, step: int, index: int = 0) -> Any:
        return np.asarray(Image.open(self.ready.folder.samples / f"step-{step:08d}" / f"{index:02d}-raw.png"))


def of(facts: list[dict[str, str]], name: str) -> list[str]:
    return [one[name] for one in facts]


@pytest.fixture
def from_file(prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FromFile]:
    def make(content: Any, name: str = "prompts.txt", **settings: Any) -> FromFile:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return FromFile(prepare, path, monkeypatch, **settings)

    return make


# breaks if the file is read only once, or sample.prompts is sampled instead
@pytest.mark.effect("sample.prompt_file")
def test_prompt_file_is_reread_before_each_preview(from_file: Callable[..., FromFile]) -> None:
    file = from_file("a red circle\na blue square --d 4\n", sample__prompts=["not this"])
    facts = file.on_step(1)
    assert (of(facts, "prompt"), of(facts, "seed"), of(facts, "index")) == (
        ["a red circle", "a blue square"], ["0", "4"], ["0", "0"],
    )  # fmt: skip
    file.write("a star\n")
    assert of(file.on_step(2), "prompt") == ["a star"], "which is in no text cache"
    assert file.said == []


# breaks if a prompt that is not in the text cache gets other text states than the model's encoder computes
@pytest.mark.effect("sample.prompt_file")
def test_later_prompt_is_encoded_like_an_initial_one(from_file: Callable[..., FromFile]) -> None:
    file = from_file("a red circle")
    file.on_step(1)
    file.write("a star")
    file.on_step(2)
    there = from_file("a star", "other.txt")
    there.on_step(2)
    assert np.array_equal(file.pixels(2), there.pixels(2))
    assert not np.array_equal(file.pixels(1), file.pixels(2))


# breaks if a broken, empty or deleted file stops the run or its previews, or is ignored silently
@pytest.mark.effect("sample.prompt_file")
def test_unusable_prompt_file_keeps_previous_prompts(from_file: Callable[..., FromFile]) -> None:
    file = from_file({"samples": [{"prompt": "a red circle"}]}, "prompts.json")
    file.on_step(0)
    broken: list[tuple[Any, str]] = [
        ('{\n "samples": [{"prompt": "a star"\n}', "prompts.json line 3: is not valid JSON"),
        (
            {"samples": [{"prompt": "a", "sed": 1}]},
            "json line 5: samples[0].sed unknown key; did you mean seed?",
        ),
        ({"samples": [{"prompt": "a", "size": [12, 16]}]}, "multiple of 8"),
        ("", "no longer has a prompt (the prompts read before stay in use)"),
    ]
    for step, (content, sentence) in enumerate(broken, 1):
        file.write(content)
        assert of(file.on_step(step), "prompt") == ["a red circle"]
        assert sentence in file.said[-1]
    file.path.unlink()
    assert of(file.on_step(8), "prompt") == ["a red circle"]
    assert "No such file" in file.said[-1]
    assert len(file.said) == 5
    file.on_step(9)
    assert len(file.said) == 5, "each is printed once"
    file.write({"samples": [{"prompt": "a star"}]})
    assert of(file.on_step(10), "prompt") == ["a star"]


# breaks if a run starts with prompts from nowhere
@pytest.mark.effect("sample.prompt_file")
def test_invalid_prompt_file_is_refused_and_empty_one_ignored(
    from_file: Callable[..., FromFile], tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match="line 1: --q is not an option"):
        from_file("a --q 3")
    with pytest.raises(RecipeError, match="No such file"):
        from_file("a", sample__prompt_file=tmp_path / "promtps.txt")
    assert of(from_file("\n", sample__prompts=["a star"]).on_step(1), "prompt") == ["a star"]
    assert of(from_file("").on_step(1), "prompt") == [f"image number {i}" for i in range(4)]


# breaks if values of a file, for all prompts or for one, are not used
@pytest.mark.effect("sample.prompt_file")
def test_json_prompt_file_sets_sampling_options(from_file: Callable[..., FromFile]) -> None:
    content = {
        "guidance": [1, 3], "steps": 2, "solver": "euler", "size": [32, 48], "seed": 9, "batch_size": 8,
        "negative_prompt": "grey",
        "samples": [
            {"prompt": "a fox"},
            {"prompt": "a hen", "guidance": 2, "negative_prompt": "", "seed": 5, "aspect_ratio": 1.5, "solver": "ddim"},
        ],
    }  # fmt: skip
    facts = from_file(content, "p.json", sample__steps=7, sample__solver="heun", data__resolution=48).on_step(1)
    keys = ("prompt", "negative_prompt", "guidance", "size", "seed", "index", "steps", "solver")
    assert [[one[key] for key in keys] for one in facts] == [
        ["a fox", "grey", "1.0", "32x48", "9", "0", "2", "euler"],
        ["a fox", "grey", "3.0", "32x48", "9", "0", "2", "euler"],
        ["a hen", "", "2.0", "48x32", "5", "0", "2", "ddim"],
    ]


# breaks if a seed of -1 is a fixed seed, or the image does not record how to generate it again
@pytest.mark.effect("sample.prompt_file")
def test_seed_minus_one_is_random_and_recorded(from_file: Callable[..., FromFile]) -> None:
    one = {"sample__batch_size": 1}  # another batch size rounds differently
    file = from_file({"samples": [{"prompt": "a star", "seed": -1}, {"prompt": "a star", "seed": -1}]}, "p.json", **one)
    seeds = [*of(file.on_step(1), "seed"), *of(file.on_step(2), "seed")]
    assert len(set(seeds)) == 4
    assert all(0 <= int(seed) < 2**31 for seed in seeds)
    again = from_file({"samples": [{"prompt": "a star", "seed": int(seeds[3])}]}, "q.json", **one)
    again.on_step(7)
    assert np.array_equal(again.pixels(7), file.pixels(2, 1))
    assert of(file.on_step(2), "seed") == seeds[2:], "a resumed run samples the same"


# breaks if -1 in a line of text is used as a number, or the image does not record the seed drawn for it
@pytest.mark.effect("sample.prompt_file")
def test_text_line_accepts_seed_minus_one(from_file: Callable[..., FromFile]) -> None:
    one = {"sample__batch_size": 1}
    file = from_file("a star --d -1\na star --d -1\na star --d 7\n", **one)
    seeds = of(file.on_step(1), "seed")
    assert seeds[2] == "7"
    assert len({*map(int, seeds)} - {-1}) == 3
    again = from_file(f"a star --d {seeds[1]}\n", "q.txt", **one)
    again.on_step(3)
    assert np.array_equal(again.pixels(3), file.pixels(1, 1))


# breaks if captions are not those of trained samples, or a resumed run selects others
@pytest.mark.effect("sample.prompt_file")
def test_random_captions_depend_on_the_step(from_file: Callable[..., FromFile]) -> None:
    file = from_file({"samples": [{"random_caption": True}] * 2}, "p.json")
    drawn = {step: of(file.on_step(step), "prompt") for step in range(1, 7)}
    assert {text for texts in drawn.values() for text in texts} <= {f"image number {i}" for i in range(10)}
    assert len({tuple(texts) for texts in drawn.values()}) > 2
    assert of(file.on_step(3), "prompt") == drawn[3]


# breaks if the file's interval is ignored, counts micro-batches, or is fixed at the start
@pytest.mark.effect("sample.prompt_file")
def test_json_prompt_file_sets_the_preview_interval(from_file: Callable[..., FromFile]) -> None:
    content = {"at_start": False, "every_batches": 5, "samples": [{"prompt": "a"}]}
    file = from_file(content, "p.json", optim__accumulation=2)

    def due() -> list[int]:
        return [step for step in range(9) if file.previews.due(Progress(step=step, last_step=99))]

    assert due() == [3, 6]
    file.write(content | {"every_batches": 8})
    file.on_step(3)
    assert due() == [4, 8]
    file.write({"samples": content["samples"]})
    file.on_step(4)
    assert due() == list(range(1, 9)), "run.preview.every, as in the recipe"


# breaks if previews encode prompts in another way than the training encodes captions
@pytest.mark.effect("model.clip_skip")
def test_previews_use_the_clip_skip_of_training(preview: Callable[..., Previewed], prepare: Prepare) -> None:
    plain = {"sample__prompts": ["a red circle"], "data__cache__text": False} | FEW
    pixels = [Previewed(prepare(**plain, model__clip_skip=skip)).pixels() for skip in (0, 1)]
    assert not np.array_equal(*pixels)
    changed = prepare(**plain)
    changed.family.skip_layers(1)
    assert np.array_equal(Previewed(changed).pixels(), pixels[1]), "also when it changes during the run"
    assert np.array_equal(
        Previewed(prepare(**plain | {"data__cache__text": True}, model__clip_skip=1)).pixels(), pixels[1]
    )
