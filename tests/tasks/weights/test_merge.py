"""`mezzotint merge`: trained parts and adapters into a model from left to right, weighted sums, several adapters into
one, in every format, and refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.cli import main
from mezzotint.errors import MezzotintError
from mezzotint.families.sdxl import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.tasks.weights import convert
from mezzotint.weights.files import tensor_files
from support.adapter_records import FILES, RECORDS, SD, ran, statistics, weights
from support.merging import UNET, merged, require_a_denoiser_takes_its_place, same, scaled
from support.model_export import counted_portions, is_sealed, load_model
from support.rounding import within


@pytest.fixture(scope="module")
def family(sdxl_folder: Path) -> Family:
    return load_model(Family, ModelSettings(family="sdxl", path=sdxl_folder))


@pytest.fixture(scope="module")
def forms(sdxl_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model as a folder and as a single file."""
    file = tmp_path_factory.mktemp("forms") / "base.safetensors"
    assert convert.run([str(sdxl_folder), str(file)]) == 0
    return {"folder": sdxl_folder, "file": file}


@pytest.mark.slow
@pytest.mark.parametrize("base", ["file", "folder"])
def test_trained_denoiser_replaces_that_of_a_file_or_folder(
    forms: dict[str, Path], family: Family, base: str, tmp_path: Path, capsys: Any
) -> None:
    written = ("out.safetensors",)
    require_a_denoiser_takes_its_place(forms, family, base, ".safetensors", tmp_path, capsys, written=written)
    assert is_sealed(tmp_path / "out.safetensors")


def test_later_files_override_and_missing_tensors_stay(
    forms: dict[str, Path], family: Family, tmp_path: Path, capsys: Any
) -> None:
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    doubled, tripled = scaled(family, a, 2.0), scaled(family, b, 3.0)
    few = {n: t for n, t in load_file(b).items() if ".input_blocks." in n}
    save_file(few | {"strange": torch.zeros(1)}, b)
    merged(forms["folder"], f"{a},{b}", tmp_path / "out", f"--report={tmp_path / 'report.json'}")
    tensors = load_file(tmp_path / "out" / UNET)
    early = {n for n in tensors if n.startswith(("conv_in.", "down_blocks."))}
    assert len(early) == len(few) > 0
    assert same(tensors, {n: tripled[n] if n in early else doubled[n] for n in tensors})
    said = capsys.readouterr().out
    assert f"unet: {len(early)} tensors from {b}, {len(tensors) - len(early)} tensors from {a}" in said
    assert f"{b}: left out, since the model has no such tensors: 1 tensor (strange)" in said
    assert f"{b}: lacks {len(tensors) - len(early)} tensors" in said
    message = json.loads((tmp_path / "report.json").read_text())["tensors"]
    assert message["unet"]["conv_in.weight"] == f"{b}: model.diffusion_model.input_blocks.0.0.weight"
    assert message["unet"]["conv_out.weight"] == f"{a}: model.diffusion_model.out.2.weight"
    assert str(forms["folder"]) in message["vae"]["quant_conv.weight"]
    merged(forms["folder"], b, a, tmp_path / "turned")
    assert same(load_file(tmp_path / "turned" / UNET), doubled)


def test_component_folder_can_be_merged(forms: dict[str, Path], family: Family, tmp_path: Path) -> None:
    scaled(family, tmp_path / "a.safetensors", 2.0)
    merged(forms["folder"], tmp_path / "a.safetensors", tmp_path / "doubled")
    merged(forms["folder"], tmp_path / "doubled" / "unet", tmp_path / "out")
    assert same(load_file(tmp_path / "out" / UNET), load_file(tmp_path / "doubled" / UNET))


@pytest.mark.parametrize("ending", ["", ".safetensors"])
def test_weighted_sum_is_computed_per_tensor(
    forms: dict[str, Path], family: Family, tmp_path: Path, ending: str, capsys: Any
) -> None:
    scaled(family, tmp_path / "a.safetensors", 3.0)
    merged(forms["file"], tmp_path / "a.safetensors", tmp_path / "other.safetensors", f"--config={forms['folder']}")
    out = tmp_path / f"sum{ending}"
    merged(forms["folder"], tmp_path / "other.safetensors", out, "--weights=0.25,0.5", "--dtype=fp16")
    assert "0.25 · model + 0.5 · other.safetensors" in capsys.readouterr().out
    if ending:
        assert convert.run([str(out), str(tmp_path / "sum"), f"--config={forms['folder']}"]) == 0
    base, vae = (load_file(forms["folder"] / name) for name in (UNET, "vae/diffusion_pytorch_model.safetensors"))
    assert same(load_file(tmp_path / "sum" / UNET), {n: (t * 0.25 + t * 3 * 0.5).half() for n, t in base.items()})
    tensors = load_file(tmp_path / "sum" / "vae" / "diffusion_pytorch_model.safetensors")
    assert same(tensors, {n: (t * 0.25 + t * 0.5).half() for n, t in vae.items()})


def test_merged_file_is_written_a_few_tensors_at_a_time(
    forms: dict[str, Path], family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled(family, tmp_path / "a.safetensors", 2.0)
    merged(forms["file"], tmp_path / "a.safetensors", tmp_path / "at-once.safetensors", f"--config={forms['folder']}")
    largest = max(t.nbytes for t in load_file(forms["file"]).values())
    portions = counted_portions(monkeypatch, largest)
    merged(forms["file"], tmp_path / "a.safetensors", tmp_path / "bits.safetensors", f"--config={forms['folder']}")
    assert len(portions) > 5
    assert max(portions) <= largest
    # the header names the title, which is the file's
    assert same(load_file(tmp_path / "bits.safetensors"), load_file(tmp_path / "at-once.safetensors"))
    assert list(load_file(tmp_path / "bits.safetensors")) == list(load_file(tmp_path / "at-once.safetensors"))


def test_incompatible_inputs_are_refused_by_name(forms: dict[str, Path], family: Family, tmp_path: Path) -> None:
    scaled(family, tmp_path / "unet.safetensors", 2.0)
    assert convert.run([str(SD), str(tmp_path / "sd.safetensors")]) == 0
    lora = tmp_path / "lora.safetensors"
    save_file({"unet.to_q.lora_A.weight": torch.zeros(1), "unet.to_q.lora_B.weight": torch.zeros(1)}, lora)
    whole = (tmp_path / "unet.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-100])
    (tmp_path / "taken").mkdir()
    base, out = forms["folder"], tmp_path / "out"
    refused: list[tuple[list[object], str, str]] = [
        ([base, tmp_path / "sd.safetensors", out], "E1451", "they are different models, the file looks like"),
        ([base, lora, out], "E1431", "match no layer of this model"),
        ([base, tmp_path / "cut.safetensors", out], "E1402", "100 bytes are missing at its end"),
        ([base, tmp_path / "nosuch.ckpt", out], "E1401", "does not exist"),
        ([tmp_path / "unet.safetensors", base, out], "E1406", "mezzotint merge MODEL FILE NEW_FILE"),
        ([base, base, tmp_path / "taken"], "E1410", "merge does not overwrite it"),
        ([base, tmp_path / "unet.safetensors", out, "--weights=1,1"], "E1405", "give a complete model"),
        ([base, base, tmp_path / "out.pt"], "E1012", "would be a pickle"),
        ([base, base, out, "--weights=1"], "E1012", "--weights has 1 numbers for 2 models"),
        ([base, out], "E1012", "merge needs at least two inputs"),
        ([base, base, out, "--weihgts=1,1"], "E1012", "did you mean --weights?"),
        ([base, tmp_path / "unet.safetensors", out, "--ema=use"], "E1415", "leave out --ema=use"),
    ]
    for words, code, said in refused:
        with pytest.raises(MezzotintError) as caught:
            merged(*words)
        assert (caught.value.code, said in str(caught.value)) == (code, True), (words, str(caught.value))
        assert not out.exists()
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")]


def test_tensors_written_one_by_one_are_readable_by_safetensors(tmp_path: Path) -> None:
    tensors = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.ones(3, dtype=torch.float16), "c": torch.tensor(5)}
    header = {n: tensor_files.TensorInfo(tensor_files.kind_of(t.dtype), tuple(t.shape)) for n, t in tensors.items()}
    tensor_files.write_iteratively(
        tmp_path / "x.safetensors", header, iter(tensors.items()), {"format": "pt", "word": "☃"}
    )
    assert same(load_file(tmp_path / "x.safetensors"), tensors)
    assert tensor_files.read_metadata(tmp_path / "x.safetensors")["word"] == "☃"
    assert same(tensor_files.read(tmp_path / "x.safetensors"), tensors)
    tensors["b"][0, 0] = float("nan")
    with pytest.raises(MezzotintError, match="not finite"):
        tensor_files.write_iteratively(tmp_path / "y.safetensors", header, iter(tensors.items()))
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_report_never_overwrites_a_file(forms: dict[str, Path], family: Family, tmp_path: Path) -> None:
    part = tmp_path / "part.safetensors"
    scaled(family, part, 2.0)
    notes, link = tmp_path / "notes.json", tmp_path / "link.json"
    notes.write_text("mine")
    link.symlink_to(tmp_path / "elsewhere.json")
    for taken in (notes, link):
        with pytest.raises(MezzotintError, match="already exists and was not changed") as caught:
            merged(forms["folder"], part, tmp_path / "out.safetensors", f"--report={taken}")
        assert caught.value.code == "E1014"
    assert notes.read_text() == "mine"
    assert not (tmp_path / "out.safetensors").exists(), "refused before writing"
    assert not (tmp_path / "elsewhere.json").exists()


# --- adapters ---------------------------------------------------------------------------------------------------------

ADAPTERS = (
    "sd_dora_r4_a8.lycoris",
    "sd_lokr_r2_a4_factor4.lycoris",
    "sd_lora_text_r4.kohya",
    "sdxl_lora_text_r4.kohya",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [ADAPTERS[0], *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ADAPTERS[1:3]), ADAPTERS[3]]
)
def test_merged_adapter_matches_record_in_folders_and_files(
    name: str, whole_sdxl: Path, tmp_path: Path, capsys: Any
) -> None:
    base, adapter = whole_sdxl if name.startswith("sdxl") else SD, FILES / f"{name}.safetensors"
    merged(base, adapter, tmp_path / "folder")
    before, after = weights(base), weights(tmp_path / "folder")
    changed = {n for n in before if not torch.equal(before[n], after[n])}
    assert {n: t.dtype for n, t in before.items()} == {n: t.dtype for n, t in after.items()}
    record = load_file(RECORDS / f"{name.partition('.')[0]}.safetensors")["stats.merged_scale_1"].double()
    plain = {n.replace("text_model.", ""): after[n] for n in changed}
    assert len(plain) == len(record)
    # float32 rounding of long sums, by the absolute sum of each row; the denoiser of SDXL is float16
    coarse = torch.tensor([8192.0 if plain[n].dtype == torch.float16 else 1.0 for n in sorted(plain)])
    bound = 4 * torch.finfo(torch.float32).eps * record[:, 1:2] * coarse[:, None]
    assert ((statistics(plain) - record).abs() <= bound).all()
    said = capsys.readouterr().out
    assert f"{adapter}: strength 1, in " in said
    assert "layers of unet" in said

    ran("convert", base, tmp_path / "base.safetensors")
    merged(tmp_path / "base.safetensors", adapter, tmp_path / "out.safetensors", f"--config={base}")
    ran("convert", tmp_path / "folder", tmp_path / "same.safetensors")
    assert same(load_file(tmp_path / "out.safetensors"), load_file(tmp_path / "same.safetensors"))
    assert is_sealed(tmp_path / "out.safetensors")


@pytest.mark.slow
def test_diffusers_output_is_equal_for_merged_folder_and_adapter(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from diffusers import StableDiffusionPipeline

    def latents(folder: Path, *, adapter: Path | None = None) -> Tensor:
        pipeline: Any = StableDiffusionPipeline.from_pretrained(
            folder, safety_checker=None, requires_safety_checker=False, feature_extractor=None
        )
        if adapter is not None:
            pipeline.load_lora_weights(adapter, adapter_name="a")
            pipeline.set_adapters("a", 0.5)
        ids, draw = torch.tensor([[3, 7, 1, 2, 9, 4]]), torch.Generator().manual_seed(0)
        with torch.no_grad():
            states = pipeline.text_encoder(ids)[0]
            return pipeline.unet(torch.randn(1, 4, 8, 8, generator=draw), 500, encoder_hidden_states=states).sample  # type: ignore[no-any-return]

    adapter = tmp_path / "adapter" / "pytorch_lora_weights.safetensors"
    record = str(FILES / "sd_lora_text_r4.kohya.safetensors")
    adapter.parent.mkdir()
    assert main(["convert", record, str(adapter), f"--base={SD}", "--layout=diffusers"]) == 0
    merged(SD, f"{adapter}:0.5", tmp_path / "out")
    drawn = latents(tmp_path / "out")
    assert float((drawn - latents(SD)).abs().max()) > 1e-3
    assert float((drawn - latents(SD, adapter=adapter)).abs().max()) < 1e-5


def test_adapters_and_files_are_applied_from_left_to_right(tmp_path: Path, capsys: Any) -> None:
    text, two = FILES / "sd_lora_text_r4.kohya.safetensors", FILES / "sd_lora_r4_a8.kohya.safetensors"
    key = next(n for n in load_file(SD / UNET) if n.endswith("attn1.to_v.weight"))
    part = tmp_path / "part.safetensors"
    save_file({key: torch.zeros_like(load_file(SD / UNET)[key])}, part)
    merged(SD, f"{text}:0.7", f"{two}:-1.2", tmp_path / "both")
    merged(SD, text, part, f"{two}:-1.2", tmp_path / "out", f"--report={tmp_path / 'report.json'}")
    base, both, out = (load_file(place / UNET) for place in (SD, tmp_path / "both", tmp_path / "out"))
    changes = {}
    for name, adapter in (("one", text), ("two", two)):
        merged(SD, adapter, tmp_path / name)
        changes[name] = load_file(tmp_path / name / UNET)[key] - base[key]
    within(both[key], base[key] + 0.7 * changes["one"] - 1.2 * changes["two"], roundings=16)
    within(out[key], -1.2 * changes["two"], roundings=64)
    origin = json.loads((tmp_path / "report.json").read_text())
    assert origin["sources"] == [str(SD), str(text), str(part), str(two)]
    assert origin["tensors"]["unet"][key] == f"{part}: {key} + -1.2 · {two}"
    assert f"{text}: strength 1, in 31 layers of unet, 12 layers of text_encoder" in capsys.readouterr().out


def test_learned_tokens_omitted_from_merge_are_reported(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    shutil.copy(FILES / "sd_lora_r4_a8.kohya.safetensors", folder / "pytorch_lora_weights.safetensors")
    merged(SD, folder, tmp_path / "one")
    assert "learned token" not in capsys.readouterr().out
    save_file({"<wug>": torch.zeros(1, 8)}, folder / "learned_embeds.safetensors")
    merged(SD, folder, tmp_path / "two")
    file = folder / "learned_embeds.safetensors"
    said = f"{folder}: its learned token <wug> is not in the result; to sample with it, add --embedding='<wug>={file}'"
    assert said in capsys.readouterr().out


def test_sums_are_rounded_once_to_the_requested_dtype(tmp_path: Path) -> None:
    adapter = FILES / "sd_dora_r4_a8.lycoris.safetensors"
    merged(SD, adapter, tmp_path / "whole")
    merged(SD, adapter, tmp_path / "half", "--dtype=bf16")
    whole, half = load_file(tmp_path / "whole" / UNET), load_file(tmp_path / "half" / UNET)
    assert same(half, {name: tensor.bfloat16() for name, tensor in whole.items()})


def test_several_adapters_are_merged_into_one(tmp_path: Path, capsys: Any) -> None:
    one, two = FILES / "sd_lora_text_r4.kohya.safetensors", FILES / "sd_lora_r4_a8.kohya.safetensors"
    out = tmp_path / "both.safetensors"
    merged(f"{one}:0.7", f"{two}:-1.2", out, f"--base={SD}", "--layout=diffusers")
    assert "0.7 of it, 44 layers" in capsys.readouterr().out
    merged(SD, out, tmp_path / "joined")
    merged(SD, f"{one}:0.7", f"{two}:-1.2", tmp_path / "apart")
    joined, apart = load_file(tmp_path / "joined" / UNET), load_file(tmp_path / "apart" / UNET)
    for name, tensor in apart.items():
        within(joined[name], tensor, roundings=32, name=name)
    assert tensor_files.read_metadata(out)["modelspec.merged_from"] == f"{one.stem}, {two.stem}"
    assert is_sealed(out)
    merged(f"{FILES / 'sd_lokr_r2_a4_factor4.lycoris.safetensors'}:0.5", tmp_path / "weak.safetensors", f"--base={SD}")
    merged(SD, tmp_path / "weak.safetensors", tmp_path / "weak")
    merged(SD, f"{FILES / 'sd_lokr_r2_a4_factor4.lycoris.safetensors'}:0.5", tmp_path / "strength")
    weak, strength = load_file(tmp_path / "weak" / UNET), load_file(tmp_path / "strength" / UNET)
    for name, tensor in strength.items():
        within(weak[name], tensor, roundings=16, name=name)


def test_unmergeable_adapters_are_refused_with_message(whole_sdxl: Path, tmp_path: Path) -> None:
    kohya, xl, dora = (
        FILES / f"{name}.safetensors"
        for name in ("sd_lora_text_r4.kohya", "sdxl_lora_text_r4.kohya", "sd_dora_r4_a8.lycoris")
    )

    def spoilt(name: str, **changes: Any) -> Path:
        tensors = load_file(kohya)
        for ending, change in changes.items():
            chosen = next(n for n in tensors if n.endswith(ending.replace("__", ".")))
            tensors[chosen] = change(tensors[chosen])
        save_file(tensors, tmp_path / name)
        return tmp_path / name

    nan = spoilt("nan.safetensors", to_v__lora_up__weight=lambda t: t * float("nan"))
    shape = spoilt("shape.safetensors", to_v__lora_down__weight=lambda t: torch.zeros(4, 1024))
    torch.save(load_file(kohya), tmp_path / "named.safetensors")
    part, out, file = tmp_path / "part.safetensors", tmp_path / "out", tmp_path / "out.safetensors"
    save_file({"conv_in.bias": load_file(SD / UNET)["conv_in.bias"]}, part)
    refused: list[tuple[list[object], str, str]] = [
        ([SD, xl, out], "E1431", "looks like an adapter for SDXL, but the model is"),
        ([whole_sdxl, kohya, out], "E1431", "looks like an adapter for Stable Diffusion 1 or 2"),
        ([SD, nan, out], "E1403", "not finite"),
        ([SD, shape, out], "E1432", "to_v does not fit: lora_down.weight (4, 1024)"),
        ([SD, tmp_path / "named.safetensors", out], "E1402", "it is a pickle file"),
        ([SD, f"{part}:0.5", out], "E1443", "is not an adapter, but has the strength 0.5"),
        ([SD, SD, kohya, out, "--weights=1,1,1"], "E1012", "append the strength of an adapter to its name"),
        ([kohya, SD, out], "E1012", "give the model first"),
        ([kohya, dora, file], "E1441", "add --base=MODEL"),
        ([kohya, dora, file, f"--base={SD}"], "E1436", "is not a plain LoRA"),
        ([kohya, part, file, f"--base={SD}"], "E1430", "contains no adapter"),
        ([kohya, xl, file, f"--base={SD}"], "E1431", "looks like an adapter for SDXL"),
    ]
    for words, code, said in refused:
        with pytest.raises(MezzotintError) as caught:
            merged(*words)
        assert (caught.value.code, said in str(caught.value)) == (code, True), (words, str(caught.value))
        assert not out.exists()
        assert not file.exists()


def test_pickled_adapter_without_alphas_is_read_with_message(
    pickles_read_here: None, tmp_path: Path, capsys: Any
) -> None:
    tensors = load_file(FILES / "sd_lora_text_r4.kohya.safetensors")
    torch.save({name: t for name, t in tensors.items() if not name.endswith(".alpha")}, tmp_path / "old.pt")
    merged(SD, tmp_path / "old.pt", tmp_path / "out")
    assert "old.pt: 44 of 44 layers have no alpha; using alpha = rank" in capsys.readouterr().out
