"""Merging: trained parts over their model, key by key and left to right, weighted sums, every form in and out, and what
is refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl import StableDiffusionXLPipeline
from model_export import files_of, load_model
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.errors import MezzotintError
from mezzotint.families.sdxl import Family
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.tasks import merge as verb
from mezzotint.tasks.convert import convert
from mezzotint.weights import merge
from mezzotint.weights.files import mindspore, tensor_files
from mezzotint.weights.single_file import modelspec

SD = Path(__file__).parents[1] / "parity" / "data" / "diffusers" / "tiny_sd"
UNET = "unet/diffusion_pytorch_model.safetensors"


@pytest.fixture(scope="module")
def family(sdxl_folder: Path) -> Family:
    return load_model(Family, ModelSettings(family="sdxl", path=sdxl_folder))


@pytest.fixture(scope="module")
def forms(sdxl_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The base model in every form."""
    root = tmp_path_factory.mktemp("forms")
    found = {"folder": sdxl_folder, "file": root / "base.safetensors", "mindspore": root / "base.ckpt"}
    for name in ("file", "mindspore"):
        assert convert.run([str(sdxl_folder), str(found[name])]) == 0
    return found


def scaled(family: Family, file: Path, factor: float, dtype: Any = "fp32") -> dict[str, Tensor]:
    """Writes the denoiser with all its numbers multiplied, alone; returns its tensors as diffusers names them."""
    state = {n: t.detach() * factor for n, t in family.parts()["denoiser"].state_dict().items()}
    weights = {f"denoiser/{n}": t for n, t in state.items()}
    family.export_parts(file, ["denoiser"], files_of(family), weights=weights, dtype=dtype)
    return state


def merged(*words: object) -> None:
    assert verb.run([str(word) for word in words]) == 0


OTHER_FORMS = ((".safetensors", "folder"), (".safetensors", "mindspore"), (".ckpt", "folder"), (".ckpt", "file"))


def same(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> bool:
    return found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(
    ("ending", "base"),
    [
        (".safetensors", "file"),
        (".ckpt", "mindspore"),
        *(pytest.param(*forms, marks=pytest.mark.slow) for forms in OTHER_FORMS),
    ],
)
def test_a_trained_denoiser_takes_its_place_whatever_the_forms(
    forms: dict[str, Path], family: Family, base: str, ending: str, tmp_path: Path, capsys: Any
) -> None:
    state = scaled(family, tmp_path / f"unet_1000{ending}", 2.0)
    given = [forms[base], tmp_path / f"unet_1000{ending}"]
    config = () if base == "folder" else (f"--config={forms['folder']}",)
    merged(*given, tmp_path / "model", *config)
    said = capsys.readouterr().out
    assert f"unet: {len(state)} tensors from {given[1]}" in said
    assert f"tensors from {given[0]}" in said
    assert same(load_file(tmp_path / "model" / UNET), state)
    opened: Any = StableDiffusionXLPipeline.from_pretrained(str(tmp_path / "model"), local_files_only=True)
    vae = family.parts()["vae"].state_dict()
    assert all(torch.equal(tensor, vae[name]) for name, tensor in opened.vae.state_dict().items())

    # the same as files, which are what converting that folder gives
    for name in ("out.safetensors", "out.ckpt"):
        merged(*given, tmp_path / name, *config)
        assert convert.run([str(tmp_path / "model"), str(tmp_path / f"other-{name}")]) == 0
        assert same(tensor_files.read(tmp_path / name), tensor_files.read(tmp_path / f"other-{name}"))
    assert modelspec.is_sealed(tmp_path / "out.safetensors")


def test_later_files_win_and_what_they_lack_stays(
    forms: dict[str, Path], family: Family, tmp_path: Path, capsys: Any
) -> None:
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    doubled, tripled = scaled(family, a, 2.0), scaled(family, b, 3.0)
    few = {n: t for n, t in load_file(b).items() if ".input_blocks." in n}
    save_file(few | {"strange": torch.zeros(1)}, b)
    merged(forms["folder"], f"{a},{b}", tmp_path / "out", f"--report={tmp_path / 'report.json'}")
    found = load_file(tmp_path / "out" / UNET)
    early = {n for n in found if n.startswith(("conv_in.", "down_blocks."))}
    assert len(early) == len(few) > 0
    assert same(found, {n: tripled[n] if n in early else doubled[n] for n in found})
    said = capsys.readouterr().out
    assert f"unet: {len(early)} tensors from {b}, {len(found) - len(early)} tensors from {a}" in said
    assert f"{b}: left out, since the model has no such thing: 1 tensor (strange)" in said
    assert f"{b}: lacks {len(found) - len(early)} tensors" in said
    told = json.loads((tmp_path / "report.json").read_text())["tensors"]
    assert told["unet"]["conv_in.weight"] == f"{b}: model.diffusion_model.input_blocks.0.0.weight"
    assert told["unet"]["conv_out.weight"] == f"{a}: model.diffusion_model.out.2.weight"
    assert str(forms["folder"]) in told["vae"]["quant_conv.weight"]
    merged(forms["folder"], b, a, tmp_path / "turned")
    assert same(load_file(tmp_path / "turned" / UNET), doubled)


def test_names_that_a_trainer_left_behind_are_freed(
    forms: dict[str, Path], family: Family, tmp_path: Path, capsys: Any
) -> None:
    state = scaled(family, tmp_path / "unet.ckpt", 2.0)
    held = dict(mindspore.read(tmp_path / "unet.ckpt"))
    odd: dict[str, Tensor] = {}
    for name, tensor in held.items():
        inside = name.removeprefix("model.diffusion_model.")
        stage = "stage1" if inside.startswith(("time_embed", "label_emb", "input", "middle")) else "stage2"
        odd[f"{stage}.diffusion_model._backbone.{inside}"] = tensor
        odd[f"ema.model.diffusion_model.{inside}"] = tensor * 3
    mindspore.write(tmp_path / "odd.ckpt", odd | {"updates": torch.tensor(7.0)})
    merged(forms["folder"], tmp_path / "odd.ckpt", tmp_path / "plain")
    said = capsys.readouterr().out
    assert f"{len(held)} names were freed of `._backbone`" in said
    assert f"left out: {len(held)} averaged tensors; --ema=use takes them" in said
    assert same(load_file(tmp_path / "plain" / UNET), state)
    merged(forms["folder"], tmp_path / "odd.ckpt", tmp_path / "averaged", "--ema=use")
    assert same(load_file(tmp_path / "averaged" / UNET), {n: t * 3 for n, t in state.items()})


def test_a_components_folder_is_laid_over_too(forms: dict[str, Path], family: Family, tmp_path: Path) -> None:
    scaled(family, tmp_path / "a.safetensors", 2.0)
    merged(forms["folder"], tmp_path / "a.safetensors", tmp_path / "doubled")
    merged(forms["folder"], tmp_path / "doubled" / "unet", tmp_path / "out")
    assert same(load_file(tmp_path / "out" / UNET), load_file(tmp_path / "doubled" / UNET))


@pytest.mark.parametrize("ending", ["", ".safetensors"])
def test_a_weighted_sum_is_one_of_every_tensor(
    forms: dict[str, Path], family: Family, tmp_path: Path, ending: str, capsys: Any
) -> None:
    scaled(family, tmp_path / "a.safetensors", 3.0)
    merged(forms["file"], tmp_path / "a.safetensors", tmp_path / "other.ckpt", f"--config={forms['folder']}")
    out = tmp_path / f"sum{ending}"
    merged(forms["folder"], tmp_path / "other.ckpt", out, "--weights=0.25,0.5", "--dtype=fp16")
    assert "0.25 · model + 0.5 · other.ckpt" in capsys.readouterr().out
    if ending:
        assert convert.run([str(out), str(tmp_path / "sum"), f"--config={forms['folder']}"]) == 0
    base, vae = (load_file(forms["folder"] / name) for name in (UNET, "vae/diffusion_pytorch_model.safetensors"))
    assert same(load_file(tmp_path / "sum" / UNET), {n: (t * 0.25 + t * 3 * 0.5).half() for n, t in base.items()})
    found = load_file(tmp_path / "sum" / "vae" / "diffusion_pytorch_model.safetensors")
    assert same(found, {n: (t * 0.25 + t * 0.5).half() for n, t in vae.items()})


def test_a_file_is_made_a_few_tensors_at_a_time(
    forms: dict[str, Path], family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled(family, tmp_path / "a.safetensors", 2.0)
    merged(forms["file"], tmp_path / "a.safetensors", tmp_path / "at-once.safetensors", f"--config={forms['folder']}")
    largest = max(t.nbytes for t in load_file(forms["file"]).values())
    portions: list[int] = []
    plain = merge._portion

    def counted(merged: Any, portion: Any) -> Iterator[tuple[str, Tensor]]:
        portions.append(sum(one.bytes for one in portion))
        return plain(merged, portion)

    monkeypatch.setattr(merge, "_portion", counted)
    monkeypatch.setattr(merge, "CHUNK", largest)
    merged(forms["file"], tmp_path / "a.safetensors", tmp_path / "bits.safetensors", f"--config={forms['folder']}")
    assert len(portions) > 5
    assert max(portions) <= largest
    # the header names the title, which is the file's
    assert same(load_file(tmp_path / "bits.safetensors"), load_file(tmp_path / "at-once.safetensors"))
    assert list(load_file(tmp_path / "bits.safetensors")) == list(load_file(tmp_path / "at-once.safetensors"))


def test_what_does_not_belong_together_is_refused_by_name(
    forms: dict[str, Path], family: Family, tmp_path: Path
) -> None:
    scaled(family, tmp_path / "unet.safetensors", 2.0)
    assert convert.run([str(SD), str(tmp_path / "sd.safetensors")]) == 0
    lora = tmp_path / "lora.safetensors"
    save_file({"unet.to_q.lora_A.weight": torch.zeros(1), "unet.to_q.lora_B.weight": torch.zeros(1)}, lora)
    whole = (tmp_path / "unet.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-100])
    (tmp_path / "taken").mkdir()
    base, out = forms["folder"], tmp_path / "out"
    refused: list[tuple[list[object], str, str]] = [
        ([base, tmp_path / "sd.safetensors", out], "E1451", "they are of different models, the file looks like"),
        ([base, lora, out], "E1452", "looks like a LoRA"),
        ([base, tmp_path / "cut.safetensors", out], "E1402", "100 bytes are missing at its end"),
        ([base, tmp_path / "nosuch.ckpt", out], "E1401", "is not there"),
        ([tmp_path / "unet.safetensors", base, out], "E1406", "mezzotint merge MODEL FILE NEW_FILE"),
        ([base, base, tmp_path / "taken"], "E1410", "merge writes over nothing"),
        ([base, tmp_path / "unet.safetensors", out, "--weights=1,1"], "E1405", "a whole model is needed"),
        ([SD, SD, tmp_path / "sd.ckpt"], "E1406", "write a name that ends in .safetensors"),
        ([base, base, tmp_path / "out.pt"], "E1012", "would be a pickle"),
        ([base, base, out, "--weights=1"], "E1012", "--weights has 1 numbers for 2 models"),
        ([base, out], "E1012", "one model alone merges with nothing"),
        ([base, base, out, "--weihgts=1,1"], "E1012", "did you mean --weights?"),
        ([base, tmp_path / "unet.safetensors", out, "--ema=use"], "E1415", "leave out --ema=use"),
    ]
    for words, code, said in refused:
        with pytest.raises(MezzotintError) as caught:
            merged(*words)
        assert (caught.value.code, said in str(caught.value)) == (code, True), (words, str(caught.value))
        assert not out.exists()
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")]


def test_tensors_written_in_turn_make_the_file_that_the_library_reads(tmp_path: Path) -> None:
    tensors = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.ones(3, dtype=torch.float16), "c": torch.tensor(5)}
    told = {n: tensor_files.TensorInfo(tensor_files.kind_of(t.dtype), tuple(t.shape)) for n, t in tensors.items()}
    tensor_files.write_in_turn(tmp_path / "x.safetensors", told, iter(tensors.items()), {"format": "pt", "word": "☃"})
    assert same(load_file(tmp_path / "x.safetensors"), tensors)
    assert tensor_files.read_metadata(tmp_path / "x.safetensors")["word"] == "☃"
    assert same(tensor_files.read(tmp_path / "x.safetensors"), tensors)
    tensors["b"][0, 0] = float("nan")
    with pytest.raises(MezzotintError, match="not finite"):
        tensor_files.write_in_turn(tmp_path / "y.safetensors", told, iter(tensors.items()))
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_report_never_takes_the_place_of_a_file(forms: dict[str, Path], family: Family, tmp_path: Path) -> None:
    part = tmp_path / "part.safetensors"
    scaled(family, part, 2.0)
    notes, link = tmp_path / "notes.json", tmp_path / "link.json"
    notes.write_text("mine")
    link.symlink_to(tmp_path / "elsewhere.json")
    for taken in (notes, link):
        with pytest.raises(MezzotintError, match="is there already and stays as it is") as caught:
            merged(forms["folder"], part, tmp_path / "out.safetensors", f"--report={taken}")
        assert caught.value.code == "E1014"
    assert notes.read_text() == "mine"
    assert not (tmp_path / "out.safetensors").exists(), "it is said before anything is made"
    assert not (tmp_path / "elsewhere.json").exists()
