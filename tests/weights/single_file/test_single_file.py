"""Models in one file: they load as the folder they were converted from; other files are refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.errors import WeightsError
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped_folder
from mezzotint.weights.layouts.sd import LAYOUT
from mezzotint.weights.single_file import single_file
from support.sd_folder import FOLDER

Edit = Callable[[dict[str, Tensor]], None]


@pytest.fixture
def edited(sd1: Path, tmp_path: Path) -> Callable[..., Path]:
    """`edited(change)`: the file with changed tensors."""

    def make(change: Edit) -> Path:
        tensors = load_file(sd1)
        change(tensors)
        save_file(tensors, tmp_path / "edited.safetensors")
        return tmp_path / "edited.safetensors"

    return make


def load(path: Path, config: Path | None = FOLDER, only: Sequence[str] | None = None, **settings: Any) -> Family:
    return Family.of(ModelSettings(path=path, config=config, **settings), only)


def is_same(a: Family, b: Family) -> bool:
    """Whether all parts of `a` have the tensors that they have in `b`."""
    pairs = [(a.parts()[part].state_dict(), b.parts()[part].state_dict()) for part in a.parts()]
    return all(x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x) for x, y in pairs)


def test_single_file_loads_like_its_folder(sd1: Path, sd2: tuple[Path, Path], family: Family) -> None:
    loaded = load(sd1)
    assert loaded.parts().keys() == {"denoiser", "text_encoder", "vae"}
    assert is_same(loaded, family)
    parts = ["text_encoder", "vae"]
    loaded = load(sd2[1], sd2[0], parts)
    assert list(loaded.parts()) == parts
    assert is_same(loaded, Family.of(ModelSettings(path=sd2[0]), parts))


def _rename_attention(tensors: dict[str, Tensor]) -> None:
    for name in [n for n in tensors if ".mid.attn_1." in n]:
        other = name
        for old, new in ((".q.", ".to_q."), (".k.", ".to_k."), (".v.", ".to_v."), (".proj_out.", ".to_out.0.")):
            other = other.replace(old, new)
        tensors[other] = tensors.pop(name).squeeze()


def _drop_text_model_level(tensors: dict[str, Tensor]) -> None:
    for name in [n for n in tensors if ".transformer.text_model." in n]:
        tensors[name.replace(".text_model.", ".")] = tensors.pop(name)


def _add_buffers(tensors: dict[str, Tensor]) -> None:
    tensors["betas"] = torch.linspace(0.01, 0.02, 1000)
    tensors["cond_stage_model.transformer.text_model.embeddings.position_ids"] = torch.arange(77)[None]


def test_other_spellings_and_extra_buffers_are_read(edited: Callable[..., Path], family: Family) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        _rename_attention(tensors)
        _drop_text_model_level(tensors)
        _add_buffers(tensors)

    loaded = load(edited(change), only=["text_encoder", "vae"])
    assert is_same(loaded, family)
    assert not loaded.notes


def test_half_precision_is_widened(edited: Callable[..., Path], family: Family) -> None:
    def halve(tensors: dict[str, Tensor]) -> None:
        tensors.update({name: tensor.half() for name, tensor in tensors.items()})

    vae, whole = (each.parts()["vae"].state_dict() for each in (load(edited(halve), only=["vae"]), family))
    assert {tensor.dtype for tensor in vae.values()} == {torch.float32}
    assert all(torch.equal(tensor, whole[name].half().float()) for name, tensor in vae.items())


def test_averaged_weights_are_used_on_request_and_noted(edited: Callable[..., Path]) -> None:
    def add(tensors: dict[str, Tensor]) -> None:
        plain = {n: t for n, t in tensors.items() if n.startswith("model.")}
        tensors.update({LAYOUT.average(name): tensor + 1 for name, tensor in plain.items()})
        tensors["model_ema.decay"] = torch.tensor(0.9999)

    path = edited(add)
    plain, averaged = (load(path, only=["denoiser"], ema_weights=which) for which in ("ignore", "use"))
    for a, b in zip(plain.parts()["denoiser"].parameters(), averaged.parts()["denoiser"].parameters(), strict=True):
        assert torch.equal(a + 1, b)
    assert any("684 averaged tensors" in note for note in plain.notes)
    assert any("averaged copy" in note for note in averaged.notes)
    files = [Family.files.of(ModelSettings(path=path, config=FOLDER, ema_weights=which)) for which in ("ignore", "use")]
    assert len({each.fingerprint("denoiser") for each in files}) == 2
    assert len({each.fingerprint("vae") for each in files}) == 1


def test_missing_averaged_weights_are_an_error(sd1: Path) -> None:
    with pytest.raises(WeightsError, match="no averaged weights") as caught:
        load(sd1, ema_weights="use")
    assert caught.value.code == "E1415"


def test_unknown_tensors_are_noted(edited: Callable[..., Path]) -> None:
    loaded = load(edited(lambda tensors: tensors.update(mystery=torch.ones(3))), only=["vae"])
    assert any("1 tensor (mystery)" in note for note in loaded.notes)


@pytest.mark.usefixtures("pickles_read_here")
def test_pickled_file_loads_and_has_the_same_fingerprint(
    sd1: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: Family
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    torch.save({"state_dict": load_file(sd1)}, tmp_path / "x.ckpt")
    loaded = load(tmp_path / "x.ckpt", only=["vae"])
    assert is_same(loaded, family)
    assert any("pickle" in note for note in loaded.notes)
    files = [Family.files.of(ModelSettings(path=path, config=FOLDER)) for path in (tmp_path / "x.ckpt", sd1)]
    assert len({each.fingerprint("vae") for each in files}) == 1


def test_safetensors_with_the_suffix_ckpt_are_read(sd1: Path, tmp_path: Path, family: Family) -> None:
    (tmp_path / "x.ckpt").symlink_to(sd1)
    assert is_same(load(tmp_path / "x.ckpt", only=["vae"]), family)


def test_fingerprint_of_a_part_depends_only_on_its_tensors(sd1: Path, edited: Callable[..., Path]) -> None:
    def train(tensors: dict[str, Tensor]) -> None:
        tensors["model.diffusion_model.out.2.bias"] += 1

    one, two = (ModelSettings(path=path, config=FOLDER) for path in (sd1, edited(train)))
    assert Family.files.of(one).fingerprint("denoiser") != Family.files.of(two).fingerprint("denoiser")
    assert Family.files.of(one).media_identity() == Family.files.of(two).media_identity()
    assert Family.files.of(one).text_identity() == Family.files.of(two).text_identity()


@pytest.mark.parametrize(
    ("metadata", "mark", "yaml", "setting", "expected"),
    [
        ({}, False, "", None, "epsilon"),
        ({"modelspec.prediction_type": "v"}, False, "", None, "v"),
        ({"modelspec.architecture": "stable-diffusion-v2-768-v"}, False, "", None, "v"),
        ({}, True, "", None, "v"),
        ({}, False, "model: {target: x, params: {parameterization: v}}", None, "v"),
        ({}, False, "model: {params: {linear_start: 0.00085}}", None, "epsilon"),
        ({}, False, "model: {path: here}", None, "epsilon"),
        ({"modelspec.prediction_type": "v"}, False, "", "epsilon", "epsilon"),
    ],
)
def test_prediction_is_taken_from_the_recipe_or_the_file(
    tmp_path: Path, metadata: dict[str, str], mark: bool, yaml: str, setting: Any, expected: str
) -> None:
    path = _header_file(tmp_path / "x.safetensors", 32, 16, metadata, **({"v_pred": (0,)} if mark else {}))
    if yaml:
        path.with_suffix(".yaml").write_text(yaml)
    family = Family.of(ModelSettings(path=path, config=FOLDER, prediction=setting), only=[])
    assert family.prediction == expected


def test_zero_terminal_snr_marker_is_used(tmp_path: Path) -> None:
    path = _header_file(tmp_path / "x.safetensors", 32, 16, v_pred=(0,), ztsnr=(0,))
    assert Family.of(ModelSettings(path=path, config=FOLDER), only=[]).schedule.zero_terminal


def _header_file(
    path: Path, width: int, channels: int = 320, metadata: dict[str, str] | None = None, **shapes: tuple[int, ...]
) -> Path:
    """Only the tensors that identify a model."""
    identifying: dict[str, tuple[int, ...]] = {
        "model.diffusion_model.input_blocks.0.0.weight": (channels, 4, 1, 1),
        "model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight": (1, width),
        "first_stage_model.quant_conv.bias": (8,),
        "cond_stage_model.transformer.x": (1,),
    } | {name.replace("__", "."): shape for name, shape in shapes.items()}
    save_file({name: torch.zeros(shape) for name, shape in identifying.items() if shape}, path, metadata)
    return path


@pytest.mark.parametrize(
    ("width", "prediction", "expected"), [(768, None, "sd1"), (1024, "v", "sd2-v"), (1024, "epsilon", "sd2")]
)
def test_shipped_configuration_is_chosen_by_the_tensors(
    tmp_path: Path, width: int, prediction: Any, expected: str
) -> None:
    path = _header_file(tmp_path / "x.safetensors", width)
    single = single_file.open_single(path, LAYOUT, prediction=prediction)
    assert single.folder.root == shipped_folder(expected)


def test_sd2_requires_a_prediction_setting(tmp_path: Path) -> None:
    path = _header_file(tmp_path / "x.safetensors", 1024)
    with pytest.raises(WeightsError, match=r"model\.prediction=v or model\.prediction=epsilon") as caught:
        single_file.open_single(path, LAYOUT)
    assert caught.value.code == "E1413"


def test_unknown_size_requires_model_config(sd1: Path) -> None:
    with pytest.raises(WeightsError, match=r"16 channels, cross-attention width 32.*model\.config=FOLDER") as caught:
        load(sd1, None)
    assert caught.value.code == "E1414"


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"model__diffusion_model__input_blocks__0__0__weight": (320, 5, 1, 1)}, "depth-to-image"),
        (
            {"conditioner__embedders__1__model": (1,)},
            "SDXL; family sd trains Stable Diffusion 1.x and 2.x, text to image; set model.family=sdxl",
        ),
        ({"conditioner__embedders__0__model": (1,)}, "SDXL refiner"),
        ({"unet__lora_down__weight": (1,)}, "LoRA adapter; to sample with it"),
        ({"control_model__x": (1,)}, "ControlNet"),
        ({"model__diffusion_model__joint_blocks__0": (1,)}, "SD 3"),
        ({"cond_stage_model__transformer__x": ()}, "without text encoder"),
        ({"first_stage_model__quant_conv__bias": ()}, r"without autoencoder \(VAE\)"),
    ],
)
def test_other_kinds_are_refused(tmp_path: Path, shapes: dict[str, tuple[int, ...]], words: str) -> None:
    path = _header_file(tmp_path / "x.safetensors", 768, **shapes)
    with pytest.raises(WeightsError, match=words) as caught:
        load(path, None)
    assert caught.value.code == "E1406"


def test_standalone_vae_is_refused(tmp_path: Path) -> None:
    for name in (
        "first_stage_model.encoder.conv_in.bias",
        "encoder.down.0.block.0.norm1.bias",
        "decoder.up_blocks.0.x",
    ):
        save_file({name: torch.ones(1)}, tmp_path / "x.safetensors")
        with pytest.raises(WeightsError, match=r"standalone autoencoder \(VAE\).*give the file of a complete model"):
            load(tmp_path / "x.safetensors", None)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.safetensors", b"", "empty"),
        ("x.ckpt", b"", "empty"),
        ("x.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", "Git LFS pointer"),
        ("x.ckpt", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", "Git LFS pointer"),
        ("x.safetensors", b"<!DOCTYPE html><html><body>please log in</body></html>", "web page"),
        ("x.bin", b"<!DOCTYPE html><html><body>please log in</body></html>", "web page"),
        ("x.safetensors", b"GGUF\x03\x00\x00\x00", "GGUF"),
        ("x.safetensors", b"PK\x03\x04 and so on", "under another name"),
    ],
)
def test_files_without_weights_are_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=words) as caught:
        load(tmp_path / name, None)
    assert caught.value.code == "E1402"


def test_renamed_pickle_never_runs(tmp_path: Path) -> None:
    class Canary:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "nest",))

    torch.save({"a": Canary()}, tmp_path / "x.safetensors")
    with pytest.raises(WeightsError, match="pickle file"):
        load(tmp_path / "x.safetensors", None)
    assert not (tmp_path / "nest").exists()


def test_truncated_file_is_reported(sd1: Path, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(sd1.read_bytes()[:-100])
    with pytest.raises(WeightsError, match="100 bytes are missing at its end"):
        load(tmp_path / "x.safetensors")


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF\x03")
    with pytest.raises(WeightsError, match="it is a GGUF file") as caught:
        load(tmp_path / "x.gguf", None)
    assert caught.value.code == "E1402"
    (tmp_path / "x.model").write_bytes(b"something")
    with pytest.raises(WeightsError, match=r"ends in \.safetensors"):
        load(tmp_path / "x.model", None)


def _drop_tensors(tensors: dict[str, Tensor]) -> None:
    del tensors["model.diffusion_model.out.2.bias"]
    del tensors["model.diffusion_model.out.2.weight"]


def _add_tensor(tensors: dict[str, Tensor]) -> None:
    tensors["model.diffusion_model.output_blocks.12.0.x"] = torch.ones(1)


def _reshape_tensor(tensors: dict[str, Tensor]) -> None:
    tensors["model.diffusion_model.out.2.bias"] = torch.ones(5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_drop_tensors, r"missing: 2 tensors \(conv_out\.weight, conv_out\.bias\)"),
        (_add_tensor, r"unexpected: 1 tensor \(model\.diffusion_model\.output_blocks\.12\.0\.x\)"),
        (_reshape_tensor, r"conv_out\.bias is 5 in the file, 4 by config\.json"),
    ],
)
def test_mismatched_tensors_are_reported(edited: Callable[..., Path], change: Edit, words: str) -> None:
    with pytest.raises(WeightsError, match=words) as caught:
        load(edited(change))
    assert caught.value.code == "E1405"


def test_shipped_tokenizers_are_those_of_clip() -> None:
    ids = {}
    for name in ("sd1", "sd2"):
        files = Family.files.of(ModelSettings(path=shipped_folder(name), weights="random"))
        tokenizer = files.tokenizer("text_encoder")
        ids[name] = tokenizer("a photo of an astronaut riding a horse", padding="max_length").input_ids
    start = [49406, 320, 1125, 539, 550, 18376, 6765, 320, 4558, 49407]
    assert ids["sd1"] == start + [49407] * 67
    assert ids["sd2"] == start + [0] * 67
