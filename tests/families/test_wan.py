"""Wan 2.2 A14B: two denoisers, each for its range of noise levels; and the layers of Wan that stay in float32."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import WanImageToVideoPipeline, WanPipeline
from diffusers.models.transformers.transformer_wan import WanTransformer3DModel
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from mezzotint.diffusion.flow_objective import FlowObjective, objective_of
from mezzotint.diffusion.objective import StepDraws
from mezzotint.errors import MezzotintError, RecipeError
from mezzotint.families.wan import Family, Files
from mezzotint.sampling import sample as sampling
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.settings.sections.run import RunSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.stages import Noised
from mezzotint.tasks.assemble import needed_parts
from mezzotint.training.callbacks._evaluating import spread
from mezzotint.training.precision.policy import Precision, cast
from mezzotint.weights.low_bit import WeightForm
from support.flow_folders import tiny_a14b
from support.sd_folder import edit

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow" / "wan" / "model"
HIGH, LOW = "denoiser", "denoiser_2"


@pytest.fixture(scope="module")
def a14b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_a14b(RECORDS, tmp_path_factory.mktemp("a14b") / "model")


def files_of(folder: Path, *train: str, **values: Any) -> Files:
    settings = {"family": "wan", "path": folder, "train": train or (HIGH,), **values}
    return Files.of(ModelSettings.model_validate(settings))


def noised(family: Family, times: list[float]) -> Noised:
    x = torch.randn(len(times), 16, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    return Noised(x, x, x, x, torch.tensor(times), torch.tensor(times) / 1000)


@torch.no_grad()
def test_two_denoisers_sample_as_the_pipeline(a14b: Path) -> None:
    family = Family.load(files_of(a14b))
    noise = torch.randn(1, 16, 2, 4, 6, generator=torch.Generator().manual_seed(0))
    pipeline: Any = WanPipeline.from_pretrained(str(a14b), local_files_only=True)
    assert pipeline.config.boundary_ratio == 0.875
    told = {"height": 32, "width": 48, "num_frames": 5, "num_inference_steps": 6, "guidance_scale": 3.0}
    theirs = pipeline(["a red circle"], negative_prompt=[""], latents=noise, output_type="latent", **told).frames
    settings = SampleSettings(steps=6, guidance=(3.0,), solver="unipc")
    how = Sampling(family.schedule, family.prediction, "cpu", settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "initial_noise", lambda *_: noise)
        ours = sampling.sample_latents(family, [Request("a red circle", Size(48, 32, 5))], how)
        one = Family.load(files_of(a14b), [HIGH, "text_encoder"])
        alone = sampling.sample_latents(one, [Request("a red circle", Size(48, 32, 5))], how)
    assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()
    assert (alone - theirs).abs().max() > 1e-2 * theirs.abs().max()


@torch.no_grad()
def test_clip_continues_its_first_frame_as_in_the_image_to_video_pipeline(tmp_path: Path) -> None:
    shutil.copytree(RECORDS, tmp_path / "model")
    values = {"image_encoder": [None, None], "image_processor": [None, None], "expand_timesteps": True}
    edit(tmp_path / "model" / "model_index.json", **values)
    family = Family.load(files_of(tmp_path / "model"))
    pixels = np.random.Generator(np.random.Philox(key=1)).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 127.5 - 1
    first = family.encode_media(tensor).chunk(2, dim=1)[0][:, :, None]
    noise = torch.randn(1, 16, 2, 4, 6, generator=torch.Generator().manual_seed(0))
    pipeline: Any = WanImageToVideoPipeline.from_pretrained(str(tmp_path / "model"), local_files_only=True)
    options = {"height": 32, "width": 48, "num_frames": 5, "num_inference_steps": 4, "guidance_scale": 3.0}
    theirs = pipeline(
        Image.fromarray(pixels), ["a red circle"], negative_prompt=[""], latents=noise, output_type="latent", **options
    ).frames
    settings = SampleSettings(steps=4, guidance=(3.0,), solver="unipc")
    how = Sampling(family.schedule, family.prediction, "cpu", settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "initial_noise", lambda *_: noise)
        ours = sampling.sample_latents(family, [Request("a red circle", Size(48, 32, 5), first_frame=first)], how)
        free = sampling.sample_latents(family, [Request("a red circle", Size(48, 32, 5))], how)
    assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()
    assert (free - theirs)[:, :, 1:].abs().max() > 1e-2 * theirs.abs().max()


def test_each_denoiser_predicts_the_samples_of_its_noise_range(a14b: Path) -> None:
    both = Family.load(files_of(a14b, HIGH, LOW))
    with torch.no_grad():
        condition = both.condition(both.encode_text(["a", "b", "c"]), None)
    mixed = noised(both, [900.0, 300.0, 875.0])
    prediction = both.predict(mixed, condition)
    for part, rows in ((HIGH, [0, 2]), (LOW, [1])):
        alone = Family(files_of(a14b), {part: both.parts()[part]}).predict(mixed, condition)
        torch.testing.assert_close(prediction[rows], alone[rows], rtol=1e-4, atol=1e-5)
    prediction.sum().backward()
    assert all(p.grad is not None for net in both.denoisers for p in net.proj_out.parameters())  # type: ignore[operator, union-attr]
    for net in both.denoisers:
        net.zero_grad()
    both.predict(noised(both, [900.0, 950.0, 980.0]), condition).sum().backward()
    low = both.parts()[LOW]
    assert all(p.grad is not None and not p.grad.any() for p in low.proj_out.parameters())  # type: ignore[operator, union-attr]


def test_choice_of_denoiser_needs_no_value_from_the_device(a14b: Path) -> None:
    """To the bit as by the levels on the device, where nothing is read back: on one without values that would raise."""
    both = Family.load(files_of(a14b, HIGH, LOW))
    objective = objective_of(ObjectiveSettings.model_validate({"flow": {"shift": 8.0}}), both.schedule, "flow")
    with torch.no_grad():
        condition = both.condition(both.encode_text(list("abcdefgh")), None)
    mixed = objective.noise(torch.zeros(8, 16, 2, 4, 4), StepDraws.at(0, 1, np.arange(8), "cpu"))
    assert {bool(level >= 0.875) for level in mixed.level} == {True, False}
    with torch.no_grad():
        on_device = both.predict(replace(mixed, host_level=None), condition)
        assert torch.equal(both.predict(mixed, condition), on_device)
    for net in both.denoisers:
        net.to("meta")
    there = objective.to("meta").noise(mixed.x_0.to("meta"), StepDraws.at(0, 1, np.arange(8), "meta"))
    text = replace(condition, text=condition.text.to("meta"))
    both.predict(there, text).sum().backward()
    with pytest.raises(NotImplementedError, match="meta"):
        both.predict(replace(there, host_level=None), text)


def test_trained_denoiser_predicts_all_samples_in_training(a14b: Path) -> None:
    """A level on the boundary may be rounded to the other side."""
    family = Family.load(files_of(a14b, HIGH))
    family.parts()[LOW].requires_grad_(False)
    with torch.no_grad():
        condition = family.condition(family.encode_text(["a"]), None)
    family.predict(noised(family, [874.9]), condition).sum().backward()
    assert family.parts()[HIGH].proj_out.weight.grad.any()  # type: ignore[union-attr]


@pytest.mark.parametrize(("train", "low", "high"), [((HIGH,), 0.875, 1.0), ((LOW,), 0.0, 0.875), ((HIGH, LOW), 0, 1)])
def test_levels_are_sampled_in_the_noise_range_of_the_trained_denoiser(
    a14b: Path, train: tuple[str, ...], low: float, high: float
) -> None:
    family = Family.load(files_of(a14b, *train), ["vae"])
    objective = objective_of(ObjectiveSettings(), family.schedule, "flow")
    assert isinstance(objective, FlowObjective)
    sigma = objective.levels(StepDraws.at(0, 1, np.arange(2000), "cpu"), torch.Size((16, 2, 4, 4)))
    assert low - 1e-6 <= float(sigma.min()) < low + 0.1
    assert high - 0.1 < float(sigma.max()) <= high + 1e-6
    times = spread(4, 1000, (low, high))
    assert len(times) == 4
    assert all(low * 1000 <= t < high * 1000 for t in times)
    if train == (HIGH,):
        beyond = ObjectiveSettings.model_validate({"flow": {"sigmas": [0.0, 0.5]}})
        with pytest.raises(RecipeError, match=r"from 0\.875 to 1") as caught:
            objective_of(beyond, family.schedule, "flow").noise(
                torch.zeros(1, 16, 2, 4, 4), StepDraws.at(0, 1, np.arange(1), "cpu")
            )
        assert caught.value.code == "E1481"


def test_other_denoiser_is_loaded_only_for_sampling() -> None:
    def parts(*words: str) -> tuple[str, ...]:
        cached = ("data.cache.text=true", "data.cache.latents=true", "model.family=wan", "model.path=m")
        return needed_parts(read_text("schema: 1", overrides=[*cached, *words]).recipe)

    never, often = "run.preview.every=null", "run.preview.every=10"
    assert parts(never) == (HIGH,)
    assert parts(never, "model.train=[denoiser_2]") == (LOW,)
    assert parts(never, "model.train=[denoiser, denoiser_2]") == (HIGH, LOW)
    assert parts(often, "model.train=[denoiser_2]") == (HIGH, LOW)


def test_export_has_both_denoisers_and_opens_in_the_pipeline(a14b: Path, tmp_path: Path) -> None:
    files = files_of(a14b, LOW)
    family = Family.load(files, [LOW])
    changed = {f"{LOW}/{n}": t + 0.01 for n, t in family.parts()[LOW].state_dict().items()}
    objective = objective_of(ObjectiveSettings(), family.schedule, "flow")
    family.export(
        tmp_path / "out", files, weights=changed, dtype="fp32", schedule=family.schedule,
        trained_form=objective.parameterization,
    )  # fmt: skip
    pipeline: Any = WanPipeline.from_pretrained(str(tmp_path / "out"), local_files_only=True)
    assert pipeline.config.boundary_ratio == 0.875
    plain = load_file(a14b / "transformer" / "diffusion_pytorch_model.safetensors")
    assert all(torch.equal(t, plain[n]) for n, t in pipeline.transformer.state_dict().items())
    assert all(torch.equal(t, changed[f"{LOW}/{n}"]) for n, t in pipeline.transformer_2.state_dict().items())


def test_layers_are_named_after_the_folder_of_their_denoiser(a14b: Path) -> None:
    for trained in ((LOW,), (HIGH,), (HIGH, LOW)):
        assert files_of(a14b, *trained).trainable_shapes().keys() == {"transformer", "transformer_2"}


def refusal(run: Any) -> tuple[str, str]:
    with pytest.raises(MezzotintError) as caught:
        run()
    return caught.value.code, caught.value.message


def test_mismatched_parts_are_refused(a14b: Path, tmp_path: Path) -> None:
    code, message = refusal(files_of(RECORDS, LOW).require_trainable)
    assert (code, "write model.train=[denoiser]" in message) == ("E1481", True)
    folder = Path(shutil.copytree(a14b, tmp_path / "model"))
    edit(folder / "model_index.json", boundary_ratio=None)
    code, message = refusal(lambda: files_of(folder))
    assert (code, "boundary_ratio" in message) == ("E1222", True)
    edit(folder / "model_index.json", boundary_ratio=0.875)
    edit(folder / "transformer_2" / "config.json", in_channels=36)
    code, message = refusal(lambda: files_of(folder))
    assert (code, "two denoisers" in message) == ("E1409", True)


def types(network: nn.Module) -> dict[str, torch.dtype]:
    named = [*network.named_parameters(), *network.named_buffers()]
    return {name: tensor.dtype for name, tensor in named if tensor.is_floating_point()}


@torch.no_grad()
def test_modules_that_diffusers_keeps_in_float32_stay_float32(tmp_path: Path) -> None:
    theirs: Any = WanTransformer3DModel.from_pretrained(str(RECORDS / "transformer"), torch_dtype=torch.bfloat16)
    precision = Precision.of(RunSettings.model_validate({"precision": "bf16"}))
    family = Family.load(Files.of(ModelSettings(family="wan", path=RECORDS)), [HIGH], {HIGH: precision.form_of(HIGH)})
    net = family.parts()[HIGH]
    cast(net, precision.of_frozen(HIGH), exclude=precision.fp32_tensors(net))
    expected = types(theirs)
    assert types(net) == expected
    assert {torch.float32, torch.bfloat16} == set(expected.values())
    assert net.condition_embedder.time_embedder.linear_1.weight.dtype == torch.float32  # type: ignore[union-attr]
    x = torch.randn(2, 16, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    text, t = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(2)), torch.tensor([901.3, 437.7])
    whole = theirs(x.bfloat16(), t, text.bfloat16(), return_dict=False)[0]

    def ours() -> Tensor:
        return net(x.bfloat16(), t, text.bfloat16(), return_dict=False)[0].float()  # type: ignore[no-any-return]

    assert torch.equal(ours(), whole.float())
    seen: list[torch.dtype] = []
    embedder: Any = net.condition_embedder.time_embedder  # type: ignore[union-attr]
    embedder.linear_2.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    with precision.autocast(torch.device("cpu")):
        ours()
        precision.keep_modules_in_fp32(net)
        ours()
    assert seen == [torch.bfloat16, torch.float32]


def test_without_keep_in_fp32_all_weights_have_one_dtype() -> None:
    precision = Precision.of(RunSettings.model_validate({"precision": "bf16", "keep_in_fp32": False}))
    assert precision.form_of(HIGH) == WeightForm(torch.bfloat16)
    net = Files.of(ModelSettings(family="wan", path=RECORDS)).network(HIGH, precision.form_of(HIGH))
    cast(net, torch.bfloat16, exclude=precision.fp32_tensors(net))
    assert set(types(net).values()) == {torch.bfloat16}
    assert replace(precision, keeps_fp32=True).fp32_tensors(net)
