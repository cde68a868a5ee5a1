"""`mezzotint resize`: another rank for every kind of adapter, with its error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mezzotint.adapters.files import read
from mezzotint.errors import MezzotintError
from mezzotint.tasks.weights import resize
from mezzotint.tasks.weights.adapter_files import AdapterBase
from mezzotint.weights.files.tensor_files import read_metadata
from support.adapter_records import FILES, SD, ran, weights
from support.model_export import is_sealed
from support.rounding import within

DORA = FILES / "sd_dora_r4_a8.lycoris.safetensors"
LOKR = FILES / "sd_lokr_r2_a4_factor4.lycoris.safetensors"
TEXT = FILES / "sd_lora_text_r4.kohya.safetensors"
NAMES = AdapterBase.at(SD).names


@pytest.mark.parametrize("adapter", [DORA, LOKR, TEXT], ids=["dora", "lokr", "lora"])
def test_resize_to_sufficient_rank_keeps_the_result(adapter: Path, tmp_path: Path, capsys: Any) -> None:
    ran("resize", adapter, tmp_path / "a.safetensors", f"--base={SD}", "--rank=512")
    said = capsys.readouterr().out
    assert "0.00% is left out" in said
    assert ("layers were DoRA" in said) == (adapter is DORA)
    for file, folder in ((adapter, "before"), (tmp_path / "a.safetensors", "after")):
        ran("merge", SD, file, tmp_path / folder)
    before, after = weights(tmp_path / "before"), weights(tmp_path / "after")
    for name, tensor in before.items():
        within(after[name], tensor, roundings=512, name=name)


def test_resize_writes_rank_and_keeps_dtype(tmp_path: Path, capsys: Any) -> None:
    half = FILES / "sd_lora_r4_a8.kohya.safetensors"
    ran("resize", half, tmp_path / "a.safetensors", f"--base={SD}", "--rank=2", "--layout=kohya")
    assert "128 layers, rank 2; of the whole change" in capsys.readouterr().out
    tensors = load_file(tmp_path / "a.safetensors")
    downs = {name: t for name, t in tensors.items() if name.endswith("lora_down.weight")}
    assert len(downs) == 128
    assert {len(t) for t in downs.values()} == {2}
    assert {t.dtype for t in downs.values()} == {torch.float16}
    words, before = read_metadata(tmp_path / "a.safetensors"), read_metadata(half)
    assert (words["ss_network_dim"], words["ss_network_alpha"]) == ("2", "2")
    assert {key: words[key] for key in before if not key.startswith("ss_network_")} == {
        key: value for key, value in before.items() if not key.startswith("ss_network_")
    }
    assert is_sealed(tmp_path / "a.safetensors")


def test_resize_chooses_ranks_by_singular_values(tmp_path: Path, capsys: Any) -> None:
    spectra = {}
    for layer, module in read(LOKR, NAMES).modules.items():
        spectra[layer] = torch.linalg.svdvals(module.difference(NAMES.weights[layer]).flatten(1))
    by_sum = {layer: int((v.cumsum(0) / v.sum() < 0.5).sum()) + 1 for layer, v in spectra.items()}
    expected = {
        "--sv-ratio=1.5": {layer: int((values >= values[0] / 1.5).sum()) for layer, values in spectra.items()},
        "--sv-cumulative=0.5": by_sum,
    }
    for switch, ranks in expected.items():
        ran("resize", LOKR, tmp_path / f"{switch}.safetensors", f"--base={SD}", "--rank=512", switch)
        modules = read(tmp_path / f"{switch}.safetensors", NAMES).modules
        assert len(set(ranks.values())) > 1
        assert {layer: module.rank for layer, module in modules.items()} == ranks
    assert f"rank {min(by_sum.values())} to {max(by_sum.values())}" in capsys.readouterr().out


def test_impossible_resizes_are_refused_with_message(tmp_path: Path) -> None:
    refused: list[tuple[list[object], str, str]] = [
        ([DORA, "--rank=2"], "E1441", "add --base=MODEL"),
        ([DORA, "--rank=2", f"--base={tmp_path}"], "E1442", "the name of a shipped one"),
        ([DORA, f"--base={SD}"], "E1012", "--rank=N is required"),
        ([DORA, f"--base={SD}", "--rank=2", "--share=0.1", "--sv-ratio=9"], "E1012", "give only one of them"),
        ([DORA, f"--base={SD}", "--rank=2", "--sv-ratio=0.5"], "E1012", "R is 1 or more, got 0.5"),
        ([DORA, f"--base={SD}", "--rank=2", "--sv-cumulative=0"], "E1012", "above 0 to 1, got 0"),
        ([SD, f"--base={SD}", "--rank=2"], "E1401", "pytorch_lora_weights.safetensors"),
        ([DORA, "--base=sd1", "--rank=2"], "E1432", "does not fit"),
    ]
    for (adapter, *switches), code, said in refused:
        with pytest.raises(MezzotintError) as caught:
            resize.run([str(adapter), str(tmp_path / "a.safetensors"), *map(str, switches)])
        assert (caught.value.code, said in str(caught.value)) == (code, True), (switches, str(caught.value))
