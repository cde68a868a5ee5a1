"""`mezzotint convert` in all directions: nothing is lost that the target can hold, nothing is overwritten."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion import StableDiffusionPipeline
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.cli import main
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.files import formats
from mezzotint.weights.files.tensor_files import read, read_metadata
from mezzotint.weights.folder.model_folder import shipped_folder
from mezzotint.weights.layouts.sd import LAYOUT
from support.adapter_records import FILES, ran
from support.model_export import counted_portions, is_sealed, second_version
from support.numbers_format import add_numbers_format

FOLDER = Path(__file__).parents[2] / "parity" / "data" / "diffusers" / "tiny_sd"
Words = Callable[[Path], tuple[object, ...]]


def convert(*words: object) -> int:
    return main(["convert", *map(str, words)])


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


def as_published(path: Path) -> dict[str, Tensor]:
    """Tensors of a single file as published: halves, buffers, unused layers, EMA, unknown ones."""
    tensors = {name: t.half() if "diffusion_model" in name else t for name, t in load_file(path).items()}
    plain = {name: t for name, t in tensors.items() if name.startswith("model.")}
    tensors |= {LAYOUT.average(name): t.float() + 1 for name, t in plain.items()}
    tensors |= {
        "betas": torch.linspace(0.1, 0.2, 1000),
        "sqrt_recip_alphas_cumprod": torch.tensor([1.0, float("inf")]),
        "model_ema.num_updates": torch.tensor(470000, dtype=torch.int32),
        "cond_stage_model.transformer.text_model.embeddings.position_ids": torch.arange(77)[None],
        "first_stage_model.loss.logvar": torch.zeros(()),
        "mystery": torch.ones(2, dtype=torch.bfloat16),
    }
    if "cond_stage_model.model.positional_embedding" in tensors:
        tensors["cond_stage_model.model.transformer.resblocks.3.ln_1.weight"] = torch.ones(32)
        tensors["cond_stage_model.model.text_projection"] = torch.ones(32, 8)
    return tensors


EXHAUSTIVE = (pytest.mark.slow, pytest.mark.exhaustive)
FIRST_OF_TWO = pytest.mark.parametrize("model", ["sd1", pytest.param("sd2", marks=EXHAUSTIVE)], indirect=True)
"""Behaviour that does not depend on the version of the model."""


@pytest.fixture(scope="module", params=["sd1", "sd2"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(folder of configurations, single file as published) of both versions."""
    root = tmp_path_factory.mktemp(request.param)
    folder = FOLDER if request.param == "sd1" else second_version(FOLDER, root / "folder")
    assert convert(folder, root / "plain.safetensors") == 0
    words = {"modelspec.author": "someone", "modelspec.hash_sha256": "0x0", "ss_steps": "7"}
    save_file(as_published(root / "plain.safetensors"), root / "published.safetensors", words)
    return folder, root / "published.safetensors"


def test_file_to_folder_to_file_keeps_every_tensor(model: tuple[Path, Path], tmp_path: Path) -> None:
    folder, source = model
    assert convert(source, tmp_path / "folder", f"--config={folder}", "--ema=keep") == 0
    assert convert(tmp_path / "folder", tmp_path / "back.safetensors", "--ema=keep") == 0
    assert equal(load_file(source), load_file(tmp_path / "back.safetensors"))
    metadata = read_metadata(tmp_path / "back.safetensors")
    assert metadata["modelspec.author"] == "someone"
    assert metadata["ss_steps"] == "7"
    assert is_sealed(tmp_path / "back.safetensors")


@FIRST_OF_TWO
def test_ema_weights_are_omitted_by_default(model: tuple[Path, Path], tmp_path: Path, capsys: Any) -> None:
    folder, source = model
    assert convert(source, tmp_path / "folder", f"--config={folder}") == 0
    printed = capsys.readouterr().out
    assert "left out: 684 averaged tensors" in printed
    assert "unknown: 1 tensor (mystery)" in printed
    assert convert(tmp_path / "folder", tmp_path / "back.safetensors") == 0
    expected = {name: t for name, t in load_file(source).items() if not name.startswith("model_ema.diffusion")}
    assert equal(expected, load_file(tmp_path / "back.safetensors"))


@pytest.mark.slow
@FIRST_OF_TWO
def test_unusual_tensor_names_are_preserved(model: tuple[Path, Path], tmp_path: Path) -> None:
    folder, source = model
    tensors = load_file(source)
    for name in [n for n in tensors if ".mid.attn_1.q.weight" in n]:
        tensors[name.replace(".q.", ".to_q.")] = tensors.pop(name).squeeze()
    save_file(tensors, tmp_path / "odd.safetensors")
    assert convert(tmp_path / "odd.safetensors", tmp_path / "folder", "--config", folder, "--ema", "keep") == 0
    assert convert(tmp_path / "folder", tmp_path / "back.safetensors", "--ema", "keep") == 0
    assert equal(tensors, load_file(tmp_path / "back.safetensors"))


def test_folder_to_file_to_folder_keeps_every_file(model: tuple[Path, Path], tmp_path: Path) -> None:
    folder = model[0]
    assert convert(folder, tmp_path / "x.safetensors") == 0
    assert convert(tmp_path / "x.safetensors", tmp_path / "back", f"--config={folder}") == 0
    for path in folder.rglob("*.safetensors"):
        tensors = load_file(tmp_path / "back" / path.relative_to(folder))
        expected = {n: t for n, t in load_file(path).items() if not n.endswith("position_ids")}
        assert equal(tensors, expected)
    for path in (folder / "tokenizer").iterdir():
        assert (tmp_path / "back" / "tokenizer" / path.name).read_bytes() == path.read_bytes()


@FIRST_OF_TWO
def test_converted_folder_opens_in_diffusers_and_mezzotint(model: tuple[Path, Path], tmp_path: Path) -> None:
    folder, source = model
    assert convert(source, tmp_path / "folder", f"--config={folder}", "--dtype=fp32") == 0
    pipeline = StableDiffusionPipeline.from_pretrained(str(tmp_path / "folder"), local_files_only=True)
    ours = Family.of(ModelSettings(path=tmp_path / "folder"))
    for theirs, part in ((pipeline.unet, "denoiser"), (pipeline.vae, "vae")):
        assert equal(theirs.state_dict(), ours.parts()[part].state_dict())
    names = load_file(tmp_path / "folder" / "text_encoder" / "model.safetensors").keys()
    assert all(name.startswith("text_model.") for name in names)


@FIRST_OF_TWO
def test_ema_use_exports_the_ema_as_denoiser(model: tuple[Path, Path], tmp_path: Path) -> None:
    folder, source = model
    name = "model.diffusion_model.out.2.bias"
    average = load_file(source)[LAYOUT.average(name)]
    assert convert(source, tmp_path / "x.safetensors", f"--config={folder}", "--ema=use") == 0
    tensors = load_file(tmp_path / "x.safetensors")
    assert torch.equal(tensors[name], average)
    assert not any(n.startswith("model_ema.diffusion") for n in tensors)
    assert convert(source, tmp_path / "folder", f"--config={folder}", "--ema=use") == 0
    unet = load_file(tmp_path / "folder" / "unet" / "diffusion_pytorch_model.safetensors")
    assert torch.equal(unet["conv_out.bias"], average)


@pytest.mark.slow
@FIRST_OF_TWO
@pytest.mark.parametrize(
    ("word", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", torch.float32)]
)
def test_dtype_option_converts_all_but_schedules(
    model: tuple[Path, Path], tmp_path: Path, word: str, dtype: torch.dtype
) -> None:
    folder, source = model
    assert convert(source, tmp_path / "x.safetensors", f"--config={folder}", f"--dtype={word}") == 0
    tensors = load_file(tmp_path / "x.safetensors")
    starts = ("model.diffusion_model.", "cond_stage_model.", "first_stage_model.encoder.")
    networks = {t.dtype for n, t in tensors.items() if n.startswith(starts) and t.is_floating_point()}
    assert networks == {dtype}
    assert tensors["betas"].dtype == torch.float32
    assert convert(folder, tmp_path / "folder", f"--dtype={word}") == 0
    unet = load_file(tmp_path / "folder" / "unet" / "diffusion_pytorch_model.safetensors")
    assert {t.dtype for t in unet.values()} == {dtype}


def test_shipped_model_is_converted_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert convert("tiny-sd", "x.safetensors", "--dtype=fp16") == 2, "it has no weights"
    assert convert("mezzotint-mini", "mini.safetensors") == 0
    assert convert("mini.safetensors", "mini", f"--config={shipped_folder('mezzotint-mini')}") == 0
    for component in ("unet", "text_encoder"):
        (path,) = (shipped_folder("mezzotint-mini") / component).glob("*.safetensors")
        assert equal(load_file(tmp_path / "mini" / component / path.name), load_file(path))
    Path("mezzotint-mini").mkdir()
    assert convert("mezzotint-mini", "again.safetensors") == 2, "a local folder takes precedence"


def test_fp16_overflow_names_the_tensor(tmp_path: Path, capsys: Any) -> None:
    assert convert(FOLDER, tmp_path / "x.safetensors") == 0
    tensors = load_file(tmp_path / "x.safetensors")
    tensors["model.diffusion_model.out.2.bias"][0] = 1e6
    save_file(tensors, tmp_path / "large.safetensors")
    assert (
        convert(tmp_path / "large.safetensors", tmp_path / "y.safetensors", f"--config={FOLDER}", "--dtype=fp16") == 2
    )
    assert "E1416" in (errors := capsys.readouterr().err)
    assert "conv_out.bias has a value of size 1e+06, too large for fp16" in errors
    assert not (tmp_path / "y.safetensors").exists()


@FIRST_OF_TWO
@pytest.mark.usefixtures("pickles_read_here")
def test_pickles_become_safetensors(model: tuple[Path, Path], tmp_path: Path) -> None:
    folder, source = model
    tensors = load_file(source)
    torch.save({"state_dict": tensors, "epoch": 3}, tmp_path / "x.ckpt")
    assert convert(tmp_path / "x.ckpt", tmp_path / "x.safetensors", f"--config={folder}", "--ema=keep") == 0
    assert equal(tensors, load_file(tmp_path / "x.safetensors"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.ckpt", "x.safetensors"]


@pytest.mark.slow
@pytest.mark.usefixtures("pickles_read_here")
def test_pickles_become_folders(tmp_path: Path) -> None:
    assert convert(FOLDER, tmp_path / "x.safetensors") == 0
    torch.save(load_file(tmp_path / "x.safetensors"), tmp_path / "x.ckpt")
    assert convert(tmp_path / "x.ckpt", tmp_path / "folder", f"--config={FOLDER}") == 0
    assert Family.of(ModelSettings(path=tmp_path / "folder"), only=[]).prediction == "epsilon"


@pytest.mark.usefixtures("pickles_read_here")
def test_unknown_pickles_keep_their_tensor_names(tmp_path: Path, capsys: Any) -> None:
    torch.save({"encoder.down.0.x": torch.ones(3)}, tmp_path / "vae.pt")
    assert convert(tmp_path / "vae.pt", tmp_path / "vae.safetensors", "--dtype=fp16") == 0
    assert torch.equal(load_file(tmp_path / "vae.safetensors")["encoder.down.0.x"], torch.ones(3).half())
    assert "standalone autoencoder (VAE)" in capsys.readouterr().out


@pytest.mark.usefixtures("pickles_read_here")
def test_folders_with_pickles_become_safetensors(tmp_path: Path) -> None:
    old = shutil.copytree(FOLDER, tmp_path / "old")
    for component in ("unet", "vae", "text_encoder"):
        [path] = (old / component).glob("*.safetensors")
        name = "pytorch_model.bin" if component == "text_encoder" else "diffusion_pytorch_model.bin"
        torch.save(load_file(path), old / component / name)
        path.unlink()
    assert convert(old, tmp_path / "new") == 0
    assert convert(FOLDER, tmp_path / "same") == 0
    assert not list((tmp_path / "new").rglob("*.bin"))
    for path in (tmp_path / "same").rglob("*.safetensors"):
        assert equal(load_file(path), load_file(tmp_path / "new" / path.relative_to(tmp_path / "same")))


def test_prediction_type_can_be_given(tmp_path: Path) -> None:
    assert convert(FOLDER, tmp_path / "x.safetensors", "--prediction=v") == 0
    assert read_metadata(tmp_path / "x.safetensors")["modelspec.prediction_type"] == "v"
    assert convert(tmp_path / "x.safetensors", tmp_path / "folder", f"--config={FOLDER}") == 0
    config = json.loads((tmp_path / "folder" / "scheduler" / "scheduler_config.json").read_text())
    assert config["prediction_type"] == "v_prediction"


def test_settings_lost_in_a_single_file_are_reported(tmp_path: Path, capsys: Any) -> None:
    source = shutil.copytree(FOLDER, tmp_path / "source")
    (source / "safety_checker").mkdir()
    assert convert(source, tmp_path / "x.safetensors") == 0
    assert "cannot contain them: safety_checker" in capsys.readouterr().out


def test_conversion_is_deterministic(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        assert convert(FOLDER, tmp_path / folder / "x.safetensors") == 0
    assert (tmp_path / "a" / "x.safetensors").read_bytes() == (tmp_path / "b" / "x.safetensors").read_bytes()


def test_shipped_vocabulary_is_copied_into_a_folder(tmp_path: Path) -> None:
    from mezzotint.weights.folder.model_folder import copy_component

    copy_component(shipped_folder("sd1") / "tokenizer", tmp_path / "tokenizer")
    names = {path.name for path in (tmp_path / "tokenizer").iterdir()}
    assert names == {"vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"}


def _taken_file(root: Path) -> tuple[object, ...]:
    (root / "x.safetensors").write_text("mine")
    return FOLDER, root / "x.safetensors"


def _taken_folder(root: Path) -> tuple[object, ...]:
    (root / "x").mkdir()
    return FOLDER, root / "x"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (_taken_file, "E1410"),
        (_taken_folder, "E1410"),
        (lambda root: (FOLDER, root / "x.bin"), "x.bin would be a pickle, which is never written; use x.safetensors"),
        (lambda root: (FOLDER,), "SOURCE DESTINATION; got 1 name"),
        (lambda root: (FOLDER, root / "x", "--dtype=fp8"), "--dtype is fp32 or fp16 or bf16, got fp8"),
        (lambda root: (FOLDER, root / "x", "--dtyp=fp16"), "did you mean --dtype?"),
        (lambda root: (FOLDER, root / "x", "--config"), "--config needs a value; write --config=FOLDER"),
        (lambda root: (FOLDER, root / "no" / "x"), "no is not a folder"),
        (lambda root: (root / "nowhere", root / "x"), "E1401"),
        (lambda root: (root, root / "x"), "a folder without model_index.json"),
        (lambda root: (FOLDER / "vae", root / "x"), "one component of a model"),
    ],
)
def test_impossible_conversions_are_named_and_leave_no_files(
    tmp_path: Path, words: Words, message: str, capsys: Any
) -> None:
    line = words(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert convert(*line) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert not (tmp_path / "x.safetensors").exists() or (tmp_path / "x.safetensors").read_text() == "mine"


def test_folder_is_converted_a_few_tensors_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert convert(FOLDER, tmp_path / "at-once.safetensors") == 0
    whole = load_file(tmp_path / "at-once.safetensors")
    largest = max(t.nbytes for t in whole.values())
    portions = counted_portions(monkeypatch, largest)
    assert convert(FOLDER, tmp_path / "bits.safetensors") == 0
    assert len(portions) > 5
    assert max(portions) <= largest
    assert equal(load_file(tmp_path / "bits.safetensors"), whole)


# --- adapters ---------------------------------------------------------------------------------------------------------


def of_adapter(source: Path, target: Path, layout: str, base: Path = FOLDER) -> dict[str, Tensor]:
    """Converts an adapter; returns its tensors."""
    ran("convert", source, target, f"--base={base}", f"--layout={layout}")
    return load_file(target)


@pytest.mark.parametrize("model", ["sd", "sdxl"])
@pytest.mark.parametrize("case", ["lora_text_r4.kohya", "lora_r4_a8.kohya", "dora_r4_a8.lycoris"])
def test_adapter_to_diffusers_layout_and_back_is_bit_exact(
    case: str, model: str, whole_sdxl: Path, tmp_path: Path
) -> None:
    base, source = whole_sdxl if model == "sdxl" else FOLDER, FILES / f"{model}_{case}.safetensors"
    dotted = of_adapter(source, tmp_path / "a.safetensors", "diffusers", base)
    flat = of_adapter(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "kohya", base)
    before = load_file(source)
    assert flat.keys() == before.keys()
    for name, tensor in before.items():
        alike = flat[name].to(tensor.dtype) if name.endswith(".alpha") else flat[name]
        assert torch.equal(alike.reshape(tensor.shape), tensor), name
        assert alike.dtype == tensor.dtype
    assert equal(of_adapter(tmp_path / "b.safetensors", tmp_path / "c.safetensors", "diffusers", base), dotted)
    written = [(tmp_path / f"{name}.safetensors").read_bytes() for name in "ac"]
    lengths = [8 + int.from_bytes(each[:8], "little") for each in written]
    assert written[0][lengths[0] :] == written[1][lengths[1] :]


def test_adapter_metadata_is_kept_and_hashes_are_recomputed(tmp_path: Path, capsys: Any) -> None:
    source = tmp_path / "source.safetensors"
    words = {
        "ss_tag_frequency": '{"sks": {"sks": 1}}', "modelspec.trigger_phrase": "sks", "modelspec.author": "me",
        "modelspec.hash_sha256": "0x1", "sshs_model_hash": "1", "sshs_legacy_hash": "12345678", "mezzotint.base": "{}",
    }  # fmt: skip
    save_file(load_file(FILES / "sd_lora_r4_a8.kohya.safetensors"), source, words)
    of_adapter(source, tmp_path / "a.safetensors", "diffusers")
    of_adapter(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "kohya")
    for name in "ab":
        file = tmp_path / f"{name}.safetensors"
        after = read_metadata(file)
        kept = {key: value for key, value in words.items() if "hash" not in key}
        assert {key: after.get(key) for key in kept} == kept
        assert is_sealed(file)
        assert after["sshs_model_hash"] == after["modelspec.hash_sha256"].removeprefix("0x")
        assert "sshs_legacy_hash" not in after
        assert ("lora_adapter_metadata" in after) == (name == "a")
        assert after["ss_base_model_version"] == "sd_v1"
    assert "ComfyUI reads only part of this layout" in capsys.readouterr().out


def test_rslora_alpha_is_scaled_by_root_of_rank_in_kohya_layout(tmp_path: Path, capsys: Any) -> None:
    file = FILES / "sd_lora_r4_a8.diffusers" / "pytorch_lora_weights.safetensors"
    settings = {"unet.r": 4, "unet.lora_alpha": 8, "unet.use_rslora": True}
    save_file(load_file(file), tmp_path / "rs.safetensors", {"lora_adapter_metadata": json.dumps(settings)})
    flat = of_adapter(tmp_path / "rs.safetensors", tmp_path / "a.safetensors", "kohya")
    assert {float(t) for name, t in flat.items() if name.endswith(".alpha")} == {16.0}
    of_adapter(file.parent, tmp_path / "b.safetensors", "kohya")
    assert "layers have no alpha" in capsys.readouterr().out
    ran(
        "convert", tmp_path / "rs.safetensors", tmp_path / "half.safetensors", f"--base={FOLDER}", "--layout=kohya",
        "--dtype=fp16",
    )  # fmt: skip
    half = load_file(tmp_path / "half.safetensors")
    assert {t.dtype for n, t in half.items() if not n.endswith("alpha")} == {torch.float16}


def test_unconvertible_adapters_are_refused_with_message(tmp_path: Path, capsys: Any) -> None:
    loha, lora = (FILES / f"sd_{name}.safetensors" for name in ("loha_r2_a4.lycoris", "lora_r4_a8.kohya"))
    out, base = tmp_path / "a.safetensors", f"--base={FOLDER}"
    uses = "is a LoRA adapter, not a model; to sample with it: mezzotint sample MODEL --adapter=FILE"
    folder = FILES / "sd_lora_text_r4.diffusers"
    refused: list[tuple[list[object], str, str]] = [
        ([loha, out, base, "--layout=diffusers"], "E1435", "does not support LoHa"),
        ([lora, out], "E1406", "a LoRA adapter; to sample with it: mezzotint sample MODEL --adapter=FILE"),
        ([folder, out], "E1406", uses),
        ([lora, out, base], "E1012", "add --layout, such as --layout=kohya"),
        ([lora, tmp_path / "a", base, "--layout=kohya"], "E1012", "a name that ends in .safetensors"),
        ([lora, out, "--layout=kohya"], "E1441", "add --base=MODEL"),
        (
            [FILES / "sdxl_lora_text_r4.diffusers", out, base, "--layout=kohya"],
            "E1431",
            "looks like an adapter for SDXL",
        ),
        ([lora, out, "--base=sdxl", "--layout=kohya"], "E1431", "but the model is SDXL"),
    ]
    for words, code, said in refused:
        assert main(["convert", *map(str, words)]) == 2, words
        complaint = capsys.readouterr().err
        assert f"error[{code}]" in complaint, (words, complaint)
        assert said in complaint, (words, complaint)
        assert not out.exists()


def test_registered_format_is_written_and_read_back(
    tmp_path: Path, sdxl_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_numbers_format(tmp_path / "packages", monkeypatch)
    file, again = tmp_path / "x.numbers", tmp_path / "again.safetensors"
    assert convert(FOLDER, file) == 0
    assert formats.name_at(file) == "numbers"
    assert "ModelSpec" not in capsys.readouterr().out
    assert main(["merge", str(FOLDER), str(file), str(tmp_path / "merged.numbers")]) == 0
    assert read(tmp_path / "merged.numbers").keys() == read(file).keys()
    assert convert(FOLDER, tmp_path / "x.safetensors", "--dtype=fp32") == 0
    assert convert(file.rename(tmp_path / "x.ckpt"), again, f"--config={FOLDER}") == 0
    assert equal(load_file(again), load_file(tmp_path / "x.safetensors"))
    for line in (["convert", sdxl_folder], ["merge", sdxl_folder, sdxl_folder / "unet"]):
        assert main([*map(str, line), str(tmp_path / "xl.numbers")]) == 2
        said = capsys.readouterr().err
        assert "only models of family sd can be written as .numbers files; use a name that ends in .safetensors" in said
