"""Flow-matching families from images to a folder that diffusers' pipeline opens: cached, killed and resumed, sampled,
with an adapter and in full."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import av
import pytest
import torch
from diffusers import DiffusionPipeline
from diffusers.models.transformers.transformer_wan import WanTransformer3DModel
from PIL import Image
from safetensors.torch import load_file, save_file

from mezzotint.cli import main
from mezzotint.settings.families.base import is_denoiser, specs
from mezzotint.weights.folder.model_folder import shipped_folder
from support.flow_folders import tiny_a14b, tiny_i2v
from support.original_names import in_ldm, ltx_name
from support.run_folders import assert_alike, logged, tensors_of
from support.sample_command import drawn
from support.sd_folder import edit
from support.trained_families import ANIMATING, CACHED, CLIPS, RECORDS, clip_settings, settings_of

FLOW_MATCHING = [spec.name for spec in specs() if spec.is_flow_matching]
SLOW_EXCEPT_FLUX = [
    name if name == "flux" else pytest.param(name, marks=pytest.mark.slow) for name in (*FLOW_MATCHING, *ANIMATING)
]


def own_model(name: str, place: Path) -> dict[str, Any]:
    """Further settings of an image-to-video model, which is made in `place`; none for others."""
    if name not in ANIMATING:
        return {}
    image = place / "first.png"
    Image.new("RGB", (48, 32), (255, 0, 0)).save(image)
    folder = tiny_i2v(RECORDS / "wan" / "model", place / name, second=name == "wan-i2v-a14b")
    return {"model__path": folder, "model__wan__text_tokens": 512, "sample__clip__first_frame": image}


def watch_loading(name: str, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The parts returned by each later load of a model."""
    family, calls = importlib.import_module(f"mezzotint.families.{name.replace('-', '_')}").Family, []
    plain = family.load.__func__

    def watched(cls: Any, files: Any, only: Any = None, *forms: Any) -> Any:
        model = plain(cls, files, only, *forms)
        calls.append(set(model.parts()))
        return model

    monkeypatch.setattr(family, "load", classmethod(watched))
    return calls


@pytest.mark.parametrize("name", SLOW_EXCEPT_FLUX)
def test_cached_run_resumes_bit_exactly_and_its_export_can_be_sampled(
    shared_world: Any, clips: Path, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world, settings = shared_world, settings_of(name) | clip_settings(name, clips) | own_model(name, tmp_path)
    assert main(["check", *world.words(f"{name}-cache", **settings)]) == 0
    assert main(["cache", *world.words(f"{name}-cache", **settings)]) == 0
    calls = watch_loading(settings["model__family"], monkeypatch)
    assert world.train(f"{name}-whole", **settings, run__preview__every=4) == 0
    denoisers = [parts for parts in calls if any(map(is_denoiser, parts))]
    assert denoisers
    assert all(all(map(is_denoiser, parts)) for parts in denoisers), "encoders are loaded only for previews"
    killed = settings | {"run__save__asynchronous": False}
    assert world.wait(world.fork(f"{name}-cut", fault="step.backward@4:kill", **killed)) == 137
    assert world.train(f"{name}-cut", **settings) == 0
    assert world.end(f"{name}-cut").tensors == world.end(f"{name}-whole").tensors
    losses = logged(world.root / f"{name}-whole")
    assert len(set(losses)) == 4

    [export] = [p for p in (world.root / f"{name}-whole" / "exports").iterdir() if p.is_dir()]
    pipeline: Any = DiffusionPipeline.from_pretrained(str(export), local_files_only=True)
    [checkpoint] = (world.root / f"{name}-whole" / "checkpoints").glob("step-00000004")
    trained = load_file(checkpoint / "weights.safetensors")
    for key, tensor in pipeline.transformer.state_dict().items():
        if f"w/denoiser/{key}" in trained:
            assert torch.equal(tensor, trained[f"w/denoiser/{key}"]), key
    if name in CLIPS:
        words = ["--prompt", "a ball", "--steps", "2", "--size", "32x32", f"sample.clip.frames={CLIPS[name]}"]
        words += [f"sample.clip.first_frame={settings['sample__clip__first_frame']}"] if name in ANIMATING else []
        assert main(["sample", str(export), *words, "--out", str(world.root / f"{name}-sampled")]) == 0
        [clip] = (world.root / f"{name}-sampled").rglob("*.mp4")
        with av.open(str(clip)) as file:
            assert file.streams.video[0].frames == CLIPS[name]
        return
    out = world.root / f"{name}-sampled"
    words = ["--prompt", "a red circle", "--steps", "2", "--size", "48x48", "--out", str(out)]
    assert main(["sample", str(export), *words]) == 0
    [image] = (path for path in out.rglob("*.png") if path.name != "contact.png")
    assert Image.open(image).size == (48, 48)


@pytest.mark.parametrize("name", SLOW_EXCEPT_FLUX)
def test_trained_adapter_loads_in_the_diffusers_pipeline(
    shared_world: Any, clips: Path, name: str, tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    world, settings = shared_world, settings_of(name) | clip_settings(name, clips) | own_model(name, tmp_path)
    own = {"model__adapter__kind": "lora", "model__adapter__rank": 2, "model__adapter__targets": "[attention]"}
    assert world.train(f"{name}-lora", **settings, **own, optim__lr=1e-2) == 0
    file = next(p for p in (world.root / f"{name}-lora" / "exports").rglob("*.safetensors") if "kohya" not in p.name)
    pipeline: Any = DiffusionPipeline.from_pretrained(str(settings["model__path"]), local_files_only=True)
    pipeline.load_lora_weights(str(file.parent), weight_name=file.name)
    assert any("lora" in key for key in pipeline.transformer.state_dict())


def sampling_of(folder: Path) -> tuple[str, str]:
    """Steps and guidance that the only image of a folder was sampled with."""
    [(_, metadata)] = drawn(folder).values()
    return metadata["steps"], metadata["guidance"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flux", "flux2"])
def test_distilled_model_export_and_adapter_sample_with_four_steps(world: Any, name: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(shipped_folder(f"tiny-{name}"), tmp_path / "distilled"))
    edit(folder / "model_index.json", is_distilled=True)
    edit(folder / "transformer" / "config.json", **({"guidance_embeds": False} if name == "flux" else {}))
    words = ("--prompt=a", "--size=48x48", "model.weights=random", "run.device=cpu")
    assert main(["sample", str(folder), *words, f"--out={tmp_path / 'folder'}"]) == 0
    assert sampling_of(tmp_path / "folder") == ("4", "1.0")
    of_run = {key: value for key, value in CACHED.items() if key != "sample__steps"}
    own = of_run | {"model__family": name, "model__path": folder, "model__weights": "random", "run__steps": 1}
    own |= {f"model__{name}__distilled": True, "run__preview__every": 1}
    adapter = {"model__adapter__kind": "lora", "model__adapter__rank": 2}
    for run, more in (("whole", {}), ("lora", adapter)):
        assert world.train(run, **own, **more) == 0
        assert main(["sample", str(world.root / run), "--prompt=a", f"--out={tmp_path / f'of-{run}'}"]) == 0
        assert sampling_of(tmp_path / f"of-{run}") == ("4", "1.0")
    [export] = [path for path in (world.root / "whole" / "exports").iterdir() if path.is_dir()]
    assert main(["sample", str(export), *words, f"--out={tmp_path / 'export'}"]) == 0
    [lora] = [path for path in (world.root / "lora" / "exports").iterdir() if path.is_dir()]
    assert main(["sample", str(folder), f"--adapter={lora}", *words, f"--out={tmp_path / 'adapter'}"]) == 0
    assert sampling_of(tmp_path / "export") == sampling_of(tmp_path / "adapter") == ("4", "1.0")


@pytest.mark.slow
def test_first_frame_conditioning_resumes_bit_exactly(shared_world: Any, clips: Path, tmp_path: Path) -> None:
    """Half of the clips are conditioned on their first frame, also after a kill. Previews start from an image, though
    the autoencoder is not loaded."""
    world, settings = shared_world, settings_of("ltx") | clip_settings("ltx", clips)
    image = tmp_path / "first.png"
    Image.new("RGB", (48, 32), (255, 0, 0)).save(image)
    settings |= {"model__ltx__first_frame_prob": 0.5, "sample__clip__first_frame": image, "run__preview__every": 2}
    assert world.train("conditioned", **settings) == 0
    assert world.train("plain", **settings | {"model__ltx__first_frame_prob": 0.0}) == 0
    assert logged(world.root / "conditioned") != logged(world.root / "plain")
    assert len(list((world.root / "conditioned" / "samples").rglob("*.mp4"))) == 3
    killed = settings | {"run__save__asynchronous": False}
    assert world.wait(world.fork("conditioned-cut", fault="step.backward@4:kill", **killed)) == 137
    assert world.train("conditioned-cut", **settings) == 0
    assert world.end("conditioned-cut").tensors == world.end("conditioned").tensors


@pytest.mark.slow
def test_newer_ltx_is_trained_and_opens_in_its_own_pipeline(shared_world: Any, clips: Path, tmp_path: Path) -> None:
    """LTX 0.9.5 and later has other positions in time and another T5 mask, so the losses differ."""
    world = shared_world
    settings = settings_of("ltx") | clip_settings("ltx", clips) | {"model__ltx__first_frame_prob": 0.5}
    folder = Path(shutil.copytree(settings["model__path"], tmp_path / "model"))
    edit(folder / "model_index.json", _class_name="LTXConditionPipeline")
    own = settings | {"model__path": folder, "run__preview__every": 4}
    assert main(["check", *world.words("later", **own)]) == 0
    assert main(["cache", *world.words("later", **own)]) == 0
    assert world.train("later", **own) == 0
    assert world.train("earlier", **settings) == 0
    assert logged(world.root / "later") != logged(world.root / "earlier")
    assert len(list((world.root / "later" / "samples").rglob("*.mp4"))) == 2
    [export] = [p for p in (world.root / "later" / "exports").iterdir() if p.is_dir()]
    pipeline: Any = DiffusionPipeline.from_pretrained(str(export), local_files_only=True)
    assert type(pipeline).__name__ == "LTXConditionPipeline"


def test_original_format_checkpoint_is_trained_and_exported_again(shared_world: Any, tmp_path: Path) -> None:
    """Trained from an original-format checkpoint, exported as a folder and as such a file, and sampled from it."""
    world, settings, folder = shared_world, settings_of("sd3"), settings_of("sd3")["model__path"]
    file, lean = tmp_path / "sd3.safetensors", Path(shutil.copytree(folder, tmp_path / "lean"))
    assert main(["convert", str(folder), str(file)]) == 0
    (lean / "transformer" / "diffusion_pytorch_model.safetensors").unlink()
    own = settings | {"model__path": file, "model__config": lean, "run__export__single_file": True, "run__steps": 2}
    assert main(["check", *world.words("one-file", **own)]) == 0
    assert world.train("one-file", **own) == 0
    [export] = [p for p in (world.root / "one-file" / "exports").iterdir() if p.is_dir()]
    pipeline: Any = DiffusionPipeline.from_pretrained(str(export), local_files_only=True)
    single = type(pipeline.transformer).from_single_file(
        str(export.with_suffix(".safetensors")), config=str(export), subfolder="transformer", local_files_only=True
    )
    trained = pipeline.transformer.state_dict()
    assert all(torch.equal(tensor, trained[name]) for name, tensor in single.state_dict().items())
    words = ["--prompt", "a red circle", "--steps", "2", "--size", "48x48", "--out", str(tmp_path / "sampled")]
    assert main(["sample", str(export.with_suffix(".safetensors")), f"model.config={lean}", *words]) == 0


def whole_checkpoint(name: str, folder: Path, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """An original-format checkpoint with more parts than the denoiser. tensors: those of the denoiser."""
    vae = load_file(folder / "vae" / "diffusion_pytorch_model.safetensors")
    if name == "ltx":
        return tensors | {f"vae.{ltx_name(key)}": tensor for key, tensor in vae.items()}
    tensors |= {f"first_stage_model.{key}": tensor.contiguous() for key, tensor in in_ldm(vae).items()}
    for part, start in (("text_encoder", "clip_l"), ("text_encoder_2", "clip_g"), ("text_encoder_3", "t5xxl")):
        own = load_file(folder / part / "model.safetensors")
        tensors |= {f"text_encoders.{start}.transformer.{key}": tensor for key, tensor in own.items()}
    return tensors


@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), [("sd3", "whole"), ("ltx", "whole"), ("sd3", "fp8")])
def test_original_format_with_all_parts_or_in_fp8_works_in_each_command(
    shared_world: Any, clips: Path, tmp_path: Path, name: str, form: str
) -> None:
    """A full checkpoint with autoencoder and SD3's text encoders, and a denoiser in fp8 without scales."""
    world, settings = shared_world, settings_of(name) | clip_settings(name, clips) | {"run__steps": 2}
    folder, file = settings["model__path"], tmp_path / "file.safetensors"
    lean = Path(shutil.copytree(folder, tmp_path / "lean"))
    assert main(["convert", str(folder), str(tmp_path / "denoiser.safetensors")]) == 0
    tensors = load_file(tmp_path / "denoiser.safetensors")
    plain = load_file(folder / "transformer" / "diffusion_pytorch_model.safetensors")
    expected = plain
    if form == "whole":
        tensors = whole_checkpoint(name, folder, tensors)
        for path in lean.rglob("*.safetensors"):
            if name == "sd3" or not path.parent.name.startswith("text"):
                path.unlink()
    else:
        tensors = {key: t.to(torch.float8_e4m3fn) if t.ndim > 1 else t for key, t in tensors.items()}
        expected = {key: t.to(torch.float8_e4m3fn).float() if t.ndim > 1 else t for key, t in plain.items()}
    save_file(tensors, file)
    own = settings | {"model__path": file, "model__config": lean}
    assert main(["check", *world.words(f"file-{name}-{form}", **own)]) == 0
    assert world.train(f"file-{name}-{form}", **own) == 0
    size = "x".join(map(str, settings["sample__size"]))
    words = ["--prompt", "a ball", "--steps", "2", "--size", size, "--out", str(tmp_path / "sampled")]
    words += [f"sample.clip.frames={CLIPS[name]}"] if name in CLIPS else []
    assert main(["sample", str(file), f"model.config={lean}", *words]) == 0
    for target in ("folder", "again.safetensors"):
        assert main(["convert", str(file), str(tmp_path / target), f"--config={lean}", "--dtype=fp32"]) == 0
    written = load_file(tmp_path / "folder" / "transformer" / "diffusion_pytorch_model.safetensors")
    assert written.keys() == plain.keys()
    assert all(torch.equal(written[key], tensor.float()) for key, tensor in expected.items())
    if form == "whole":
        vae = load_file(tmp_path / "folder" / "vae" / "diffusion_pytorch_model.safetensors")
        assert vae.keys() == load_file(folder / "vae" / "diffusion_pytorch_model.safetensors").keys()


def in_files(folder: Path, place: Path) -> dict[str, Any]:
    """Settings of an SD3 whose parts are standalone files, as in ComfyUI, with a folder without weights as config."""
    assert main(["convert", str(folder), str(place / "sd3.safetensors")]) == 0
    lean = Path(shutil.copytree(folder, place / "lean"))
    vae = load_file(folder / "vae" / "diffusion_pytorch_model.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in in_ldm(vae).items()}, place / "ae.safetensors")
    encoders = {"text_encoder": "clip_l", "text_encoder_2": "clip_g", "text_encoder_3": "t5xxl_fp16"}
    for part, name in encoders.items():
        shutil.copy(folder / part / "model.safetensors", place / f"{name}.safetensors")
    for file in lean.rglob("*.safetensors"):
        file.unlink()
    over = [str(place / f"{name}.safetensors") for name in encoders.values()]
    return {
        "model__path": place / "sd3.safetensors", "model__config": lean, "model__vae": place / "ae.safetensors",
        "model__over": over,
    }  # fmt: skip


@pytest.mark.slow
def test_standalone_component_files_train_as_the_folder_does(
    shared_world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bit-exact. The exported folder holds all parts, and the files can be sampled."""
    world, settings = shared_world, settings_of("sd3") | {"run__steps": 2}
    folder = settings["model__path"]
    assert world.train("of-folder", **settings, data__cache__path=tmp_path / "a") == 0
    own = settings | in_files(folder, tmp_path)
    assert main(["check", *world.words("of-files", **own)]) == 0
    assert "ae.safetensors" in capsys.readouterr().out
    assert main(["cache", *world.words("of-files", **own)]) == 0
    assert world.train("of-files", **own) == 0
    assert world.end("of-files").tensors == world.end("of-folder").tensors
    [export] = [p for p in (world.root / "of-files" / "exports").iterdir() if p.is_dir()]
    pipeline: Any = DiffusionPipeline.from_pretrained(str(export), local_files_only=True)
    plain: Any = DiffusionPipeline.from_pretrained(str(folder), local_files_only=True)
    for part in ("vae", "text_encoder", "text_encoder_2", "text_encoder_3"):
        ours, theirs = getattr(pipeline, part).state_dict(), getattr(plain, part).state_dict()
        assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items()), part
    files = [f"model.{key.partition('__')[2]}={own[key]}" for key in ("model__config", "model__vae")]
    words = ["--prompt", "a red circle", "--steps", "2", "--size", "48x48", "--out", str(tmp_path / "sampled")]
    over = f"model.over={json.dumps(own['model__over'])}"
    assert main(["sample", str(own["model__path"]), *files, over, *words]) == 0
    assert main(["sample", str(world.root / "of-files"), *words[:-1], str(tmp_path / "of-run")]) == 0


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        ("flux", "ddp"),
        ("sd3", "fsdp"),
        ("ltx", "fsdp"),
        *(
            pytest.param(name, runtime, marks=pytest.mark.exhaustive)
            for name in FLOW_MATCHING
            for runtime in ("ddp", "fsdp")
            if (name, runtime) not in (("flux", "ddp"), ("sd3", "fsdp"), ("ltx", "fsdp"))
        ),
    ],
)
def test_two_processes_end_as_one_does(shared_world: Any, clips: Path, name: str, runtime: str) -> None:
    world, settings = shared_world, settings_of(name) | clip_settings(name, clips) | {"run__export__every": None}
    if not (world.root / f"{name}-one").exists():
        assert world.train(f"{name}-one", **settings) == 0
    for child in world.fork_group(f"{name}-{runtime}", 2, run__runtime=runtime, **settings):
        assert world.wait(child) == 0, world.out(f"{name}-{runtime}")
    assert logged(world.root / f"{name}-{runtime}") == pytest.approx(logged(world.root / f"{name}-one"), rel=1e-4)
    assert_alike(tensors_of(world.root / f"{name}-{runtime}"), tensors_of(world.root / f"{name}-one"))


@pytest.fixture(scope="module")
def experts(clips: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model with two denoisers, and clips."""
    folder = tiny_a14b(RECORDS / "wan" / "model", tmp_path_factory.mktemp("experts") / "model")
    return settings_of("wan") | clip_settings("wan", clips) | {"model__path": folder}


@pytest.mark.slow
def test_one_of_two_denoisers_is_trained_in_full_and_by_adapter(shared_world: Any, experts: dict[str, Any]) -> None:
    pytest.importorskip("peft")
    world, low = shared_world, experts | {"model__train": "[denoiser_2]"}
    base: Any = DiffusionPipeline.from_pretrained(str(experts["model__path"]), local_files_only=True)
    assert world.train("low", **low, run__preview__every=4) == 0
    assert len(list((world.root / "low" / "samples").rglob("*.mp4"))) == 2
    [export] = [p for p in (world.root / "low" / "exports").iterdir() if p.is_dir()]
    trained: Any = DiffusionPipeline.from_pretrained(str(export), local_files_only=True)
    for part, is_same in (("transformer", True), ("transformer_2", False)):
        before, after = getattr(base, part).state_dict(), getattr(trained, part).state_dict()
        assert all(torch.equal(tensor, before[name]) for name, tensor in after.items()) is is_same
    own = {"model__adapter__kind": "lora", "model__adapter__rank": 2, "model__adapter__targets": "[attention]"}
    assert world.train("low-lora", **low, **own, optim__lr=1e-2) == 0
    files = {p.name: p for p in (world.root / "low-lora" / "exports").rglob("*.safetensors")}
    assert len(files) == 2
    assert all(name.endswith("_low_noise.safetensors") for name in files)
    file = files["pytorch_lora_weights_low_noise.safetensors"]
    base.load_lora_weights(str(file.parent), weight_name=file.name, load_into_transformer_2=True)
    assert any("lora" in key for key in base.transformer_2.state_dict())
    assert not any("lora" in key for key in base.transformer.state_dict())
    words = ["--prompt", "a ball", "--steps", "2", "--size", "32x32", "sample.clip.frames=5", "--out"]
    assert main(["sample", str(world.root / "low-lora"), *words, str(world.root / "low-sampled")]) == 0
    model = [str(experts["model__path"]), "model.train=[denoiser_2]", f"--adapter={file}"]
    assert main(["sample", *model, *words, str(world.root / "low-sampled-2")]) == 0
    assert world.train("both-lora", **experts, **own, model__train="[denoiser, denoiser_2]") == 0
    [folder] = {p.parent for p in (world.root / "both-lora" / "exports").rglob("*.safetensors")}
    endings = [file.stem.rpartition("_")[0].rpartition("_")[2] for file in folder.glob("*.safetensors")]
    assert sorted(endings) == ["high", "high", "low", "low"]
    model = [str(experts["model__path"]), f"--adapter={folder}"]
    assert main(["sample", *model, *words, str(world.root / "both-sampled")]) == 0


@pytest.mark.slow
@pytest.mark.distributed
def test_two_denoisers_are_trained_together_and_in_two_processes(shared_world: Any, experts: dict[str, Any]) -> None:
    world = shared_world
    both = experts | {"model__train": "[denoiser, denoiser_2]", "run__export__every": None}
    assert world.train("both", **both) == 0
    [checkpoint] = (world.root / "both" / "checkpoints").glob("step-00000004")
    parts = {name.split("/")[1] for name in load_file(checkpoint / "weights.safetensors")}
    assert parts == {"denoiser", "denoiser_2"}
    for runtime in ("ddp", "fsdp"):
        for child in world.fork_group(f"both-{runtime}", 2, run__runtime=runtime, **both):
            assert world.wait(child) == 0, world.out(f"both-{runtime}")
        assert logged(world.root / f"both-{runtime}") == pytest.approx(logged(world.root / "both"), rel=1e-4)
        assert_alike(tensors_of(world.root / f"both-{runtime}"), tensors_of(world.root / "both"))


@pytest.mark.slow
def test_two_denoisers_in_two_files_train_as_their_folder_does(
    shared_world: Any, experts: dict[str, Any], tmp_path: Path
) -> None:
    """Training one of them and both is bit-exact; both are exported as files."""
    world, folder = shared_world, experts["model__path"]
    lean = Path(shutil.copytree(folder, tmp_path / "lean"))
    for part, name in (("denoiser", "transformer"), ("denoiser_2", "transformer_2")):
        assert main(["convert", str(folder), str(tmp_path / f"{part}.safetensors"), f"--part={part}"]) == 0
        next((lean / name).glob("*.safetensors")).unlink()
    files = {
        "model__path": tmp_path / "denoiser.safetensors", "model__config": lean,
        "model__wan__low_noise": tmp_path / "denoiser_2.safetensors", "run__export__single_file": True,
    }  # fmt: skip
    for train in ("[denoiser_2]", "[denoiser, denoiser_2]"):
        own = experts | {"model__train": train, "run__steps": 2}
        name = f"files-{len(train)}"
        assert world.train(f"{name}-folder", **own) == 0
        assert main(["check", *world.words(f"{name}-check", **own | files)]) == 0
        assert world.train(name, **own | files) == 0
        assert world.end(name).tensors == world.end(f"{name}-folder").tensors
        exports = world.root / name / "exports"
        [export] = [path for path in exports.iterdir() if path.is_dir()]
        for noise, part in (("high", "transformer"), ("low", "transformer_2")):
            [file] = exports.glob(f"*-{noise}_noise.safetensors")
            single = WanTransformer3DModel.from_single_file(
                str(file), config=str(export), subfolder=part, local_files_only=True
            )
            trained = load_file(next((export / part).glob("*.safetensors")))
            assert all(torch.equal(tensor, trained[key]) for key, tensor in single.state_dict().items())
    own = [f"model.config={lean}", f"model.wan.low_noise={tmp_path / 'denoiser_2.safetensors'}", "model.family=wan"]
    words = ["--prompt", "a ball", "--steps", "2", "--size", "32x32", "sample.clip.frames=5"]
    out = str(tmp_path / "sampled")
    assert main(["sample", str(tmp_path / "denoiser.safetensors"), *own, *words, "--out", out]) == 0


WIDER: dict[str, dict[str, Any]] = {
    "sd3": {"num_attention_heads": 8, "caption_projection_dim": 64}, "flux": {"num_attention_heads": 8},
    "chroma": {"num_attention_heads": 8},
    "krea2": {"num_attention_heads": 8},
    "flux2": {"num_attention_heads": 8}, "qwen-image": {"num_attention_heads": 8},
    "wan": {"num_attention_heads": 8, "ffn_dim": 128},
    "ltx": {"num_attention_heads": 8, "cross_attention_dim": 128},
    "z-image": {"dim": 64, "n_heads": 8, "n_kv_heads": 8},
}  # fmt: skip
"""Changes that make the tiny denoisers wide enough to overfit."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps", "batch_size", "lr"),
    [
        ("flux", 120, 4, 2e-2),
        ("ltx", 120, 4, 2e-2),
        *(
            pytest.param(name, 800, 8, 1e-2, marks=pytest.mark.exhaustive)
            for name in FLOW_MATCHING
            if name not in ("flux", "ltx")
        ),
    ],
)
def test_model_overfits_two_samples(
    shared_world: Any, clips: Path, tmp_path: Path, name: str, steps: int, batch_size: int, lr: float
) -> None:
    """Two images or clips, each always with the same latents: the loss falls below a fifth of its start."""
    world, folder = shared_world, shared_world.root / f"two-{name}"
    folder.mkdir()
    for file in sorted((clips if name in CLIPS else world.images).iterdir())[:4]:
        shutil.copy(file, folder)
    settings = settings_of(name)
    model = Path(shutil.copytree(settings["model__path"], tmp_path / "model"))
    edit(model / "transformer" / "config.json", **WIDER[name])
    settings |= clip_settings(name, clips) | {"model__path": model, "model__weights": "random", "data__path": folder}
    schedule = {"run__steps": steps, "run__save__every": steps, "optim__lr": lr, "optim__schedule__kind": "cosine"}
    two = {"data__repeats": batch_size // 2, "data__batch_size": batch_size, "data__captions__dropout": 0}
    two |= {"data__cache__content": "sample"}
    assert world.train(f"{name}-overfit", **settings | schedule | two) == 0
    losses = logged(world.root / f"{name}-overfit")
    assert sum(losses[-20:]) / 20 < sum(losses[:5]) / 5 / 5
