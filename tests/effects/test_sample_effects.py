"""Rows of the section `sample`: what previews are drawn of, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from PIL import Image

from mezzotint.recipe.sample import SolverName
from mezzotint.training.previews import Previews

Prepare = Callable[..., Any]
FEW = {"run__preview__every": 1, "run__preview__weights": "raw", "sample__steps": 2, "sample__guidance": 1}


class Drawn:
    """The previews of a run before its first step. seen: the batch size and timestep of each call of the denoiser."""

    def __init__(self, ready: Any) -> None:
        self.folder = ready.job.folder.samples / "step-00000000"
        self.seen: list[tuple[int, float]] = []
        hook = ready.family.parts()["denoiser"].register_forward_pre_hook(self._note)
        [previews] = [o for o in ready.trainer.observers if isinstance(o, Previews)]
        previews.look(None, ready.trainer.progress)
        hook.remove()

    def _note(self, module: Any, inputs: Any) -> None:
        self.seen.append((len(inputs[0]), float(inputs[1].flatten()[0])))

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.png"))

    def pixels(self, index: int = 0) -> Any:
        return np.asarray(Image.open(self.folder / f"{index:02d}-raw.png"))

    def facts(self, index: int = 0) -> dict[str, str]:
        return dict(Image.open(self.folder / f"{index:02d}-raw.png").text)  # type: ignore[attr-defined]


@pytest.fixture
def draw(prepare: Prepare) -> Callable[..., Drawn]:
    def make(**settings: Any) -> Drawn:
        given = {"sample__prompts": ["a red circle"]} | FEW
        return Drawn(prepare(**given | {f"sample__{name}": value for name, value in settings.items()}))

    return make


# breaks if other prompts were drawn, fewer of them, or none where none is written
@pytest.mark.effect("sample.prompts")
def test_prompts_are_what_is_drawn(draw: Callable[..., Drawn]) -> None:
    drawn = draw(prompts=["a red circle", "a blue square, tiny"])
    assert drawn.names == ["00-raw.png", "01-raw.png"]
    assert [drawn.facts(i)["prompt"] for i in (0, 1)] == ["a red circle", "a blue square, tiny"]
    assert not np.array_equal(drawn.pixels(0), draw(prompts=["a blue square, tiny"]).pixels(0))
    without = draw(prompts=[])
    assert [without.facts(i)["prompt"] for i in range(4)] == [f"picture number {i}" for i in range(4)]
    assert len(without.names) == 4


# breaks if guidance moved away from something else, or the text did not count
@pytest.mark.effect("sample.negative_prompt")
def test_negative_prompt_is_what_guidance_moves_away_from(draw: Callable[..., Drawn]) -> None:
    empty, ugly = draw(guidance=7), draw(guidance=7, negative_prompt="ugly")
    assert ugly.facts()["negative_prompt"] == "ugly"
    assert not np.array_equal(empty.pixels(), ugly.pixels())
    assert np.array_equal(draw(negative_prompt="ugly").pixels(), draw().pixels()), "without guidance it is not seen"
    same = draw(guidance=7, negative_prompt="a red circle")
    difference = np.abs(same.pixels().astype(int) - draw(guidance=1).pixels().astype(int))
    assert difference.max() <= 1, "away from itself is nowhere: n + s · (p − n) = p"


# breaks if previews had the training's size whatever is asked
@pytest.mark.effect("sample.size")
def test_size_is_width_and_height(draw: Callable[..., Drawn]) -> None:
    assert draw(size=[64, 32]).pixels().shape == (32, 64, 3)
    assert draw(size="null").pixels().shape == (48, 48, 3)


# breaks if the seed did not address the noise, or something else did
@pytest.mark.effect("sample.seed")
def test_seed_is_the_noise_that_is_begun_with(draw: Callable[..., Drawn]) -> None:
    one, again, other = draw(seed=1), draw(seed=1), draw(seed=2)
    assert np.array_equal(one.pixels(), again.pixels())
    assert not np.array_equal(one.pixels(), other.pixels())


# breaks if the solver made another number of steps
@pytest.mark.effect("sample.steps")
@pytest.mark.parametrize("steps", [1, 3])
def test_steps_counts_the_calls_of_the_denoiser(draw: Callable[..., Drawn], steps: int) -> None:
    drawn = draw(steps=steps)
    assert len(drawn.seen) == steps
    assert [t for _, t in drawn.seen] == sorted({t for _, t in drawn.seen}, reverse=True)


# breaks if guidance were left out or had another scale, or a scale of 1 cost twice the work
@pytest.mark.effect("sample.guidance")
def test_guidance_pushes_from_the_negative_prompt(draw: Callable[..., Drawn]) -> None:
    found = {scale: draw(guidance=scale, steps=1) for scale in (1, 3, 9)}
    assert {scale: [n for n, _ in drawn.seen] for scale, drawn in found.items()} == {1: [1], 3: [2], 9: [2]}
    pixels = [found[scale].pixels().astype(int) for scale in (1, 3, 9)]
    nearer, further = (np.abs(p - pixels[0]).mean() for p in pixels[1:])
    assert 0 < nearer < further


# breaks if another solver drew: each visits timesteps, or weighs predictions, of its own
@pytest.mark.effect("sample.solver")
def test_solver_is_the_way_down(draw: Callable[..., Drawn], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for module, name in (
        ("ddim", "DDIMScheduler"),
        ("euler_discrete", "EulerDiscreteScheduler"),
        ("dpmsolver_multistep", "DPMSolverMultistepScheduler"),
    ):
        kind = getattr(__import__(f"diffusers.schedulers.scheduling_{module}", fromlist=[name]), name)
        monkeypatch.setattr(kind, "step", _noted(made, name, kind.step))
    pictures = [draw(solver=solver, steps=3).pixels() for solver in ("ddim", "euler", "dpm++")]
    assert made == ["DDIMScheduler"] * 3 + ["EulerDiscreteScheduler"] * 3 + ["DPMSolverMultistepScheduler"] * 3
    for a, b in ((0, 1), (1, 2), (0, 2)):
        assert not np.array_equal(pictures[a], pictures[b])


# breaks if a name stood for another solver, or diffusers' own name were not understood
@pytest.mark.effect("sample.solver")
def test_every_solver_draws_a_preview_of_its_own(draw: Callable[..., Drawn]) -> None:
    names: tuple[str, ...] = get_args(SolverName)
    found = {name: draw(solver=name, steps=5) for name in names}
    calls = {name: len(drawn.seen) for name, drawn in found.items()}
    assert calls == dict.fromkeys(names, 5) | {"heun": 9, "dpm2": 9, "pndm": 6}
    assert all(drawn.facts()["solver"] == name for name, drawn in found.items())
    pixels = {name: drawn.pixels().tobytes() for name, drawn in found.items()}
    same = [(a, b) for a in names for b in names if a < b and pixels[a] == pixels[b]]
    assert not same
    stock = draw(solver="EulerAncestralDiscreteScheduler", steps=5)
    assert (stock.facts()["solver"], stock.pixels().tobytes()) == ("euler-a", pixels["euler-a"])


# breaks if the contrast of the guided output stayed as it is, or were brought back all the way whatever is asked
@pytest.mark.effect("sample.guidance_rescale")
def test_guidance_rescale_brings_the_contrast_back(draw: Callable[..., Drawn]) -> None:
    pixels = [draw(guidance=9, guidance_rescale=share).pixels().astype(int) for share in (0, 0.5, 1)]
    far, further = (np.abs(p - pixels[0]).mean() for p in pixels[1:])
    assert 0 < far < further
    assert np.array_equal(draw(guidance=1, guidance_rescale=1).pixels(), draw(guidance=1).pixels())


# breaks if the solver visited other timesteps than those asked for
@pytest.mark.effect("sample.spacing")
def test_spacing_is_which_timesteps_are_visited(draw: Callable[..., Drawn]) -> None:
    visited = {
        spacing: [round(t) for _, t in draw(spacing=spacing, steps=4).seen]
        for spacing in ("auto", "leading", "trailing", "linspace")
    }
    assert visited["auto"] == visited["leading"] == [751, 501, 251, 1]
    assert visited["trailing"] == [999, 749, 499, 249]
    assert visited["linspace"] == [999, 666, 333, 0]


# breaks if all pictures were drawn together, or one by one, whatever is asked
@pytest.mark.effect("sample.batch_size")
def test_batch_size_is_how_many_are_drawn_together(draw: Callable[..., Drawn]) -> None:
    three = ["a red circle", "a blue square", "a star"]
    found = {size: draw(prompts=three, batch_size=size, steps=1) for size in (1, 2, 8)}
    assert {size: [n for n, _ in drawn.seen] for size, drawn in found.items()} == {1: [1, 1, 1], 2: [2, 1], 8: [3]}
    for place in range(3):
        difference = found[1].pixels(place).astype(int) - found[8].pixels(place).astype(int)
        assert np.abs(difference).max() <= 1


def _noted(made: list[str], name: str, step: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: Any, *given: Any, **named: Any) -> Any:
        made.append(name)
        return step(self, *given, **named)

    return noted


# breaks if previews drew with other numbers than those written into the picture
def test_the_picture_says_how_it_was_drawn(draw: Callable[..., Drawn]) -> None:
    facts = draw(seed=3, steps=2, guidance=2.5, solver="euler", size=[32, 32]).facts()
    wanted = {"seed": "3", "steps": "2", "guidance": "2.5", "solver": "euler", "size": "32x32"}
    assert {name: facts[name] for name in wanted} == wanted


# breaks if one scale of several were drawn, or their noise differed
@pytest.mark.effect("sample.guidance")
def test_several_guidance_scales_draw_each_prompt_at_each(draw: Callable[..., Drawn]) -> None:
    several = draw(prompts=["a red circle", "a blue square"], guidance=[1, 4])
    assert [several.facts(i)["guidance"] for i in range(4)] == ["1.0", "4.0", "1.0", "4.0"]
    assert [several.facts(i)["prompt"][2:5] for i in range(4)] == ["red", "red", "blu", "blu"]
    for index, scale in ((0, 1), (1, 4)):
        alone = draw(prompts=["a red circle", "a blue square"], guidance=scale)
        assert np.array_equal(several.pixels(index), alone.pixels(0))
        assert np.array_equal(several.pixels(2 + index), alone.pixels(1))
