"""The model that an adapter is for, and an adapter where a model is expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mezzotint.adapters.names import LayerName
from mezzotint.cli import main
from mezzotint.errors import WeightsError
from mezzotint.tasks.weights import adapter_files
from mezzotint.tasks.weights.adapter_files import AdapterBase
from support.adapter_records import FILES, SD, ran

LTX = Path(__file__).parents[2] / "parity" / "data" / "flow" / "ltx" / "model"


def test_base_is_a_folder_file_or_shipped_name(tmp_path: Path) -> None:
    ran("convert", SD, tmp_path / "one.safetensors")
    folder, file = AdapterBase.at(SD), AdapterBase.at(tmp_path / "one.safetensors", SD)
    assert folder.names.weights == file.names.weights
    assert not (tmp_path / "store").exists()
    full = AdapterBase.at(Path("sd1")).names.weights
    assert full[LayerName("unet", "mid_block.attentions.0.transformer_blocks.0.attn2.to_k")] == (1280, 768)
    clips = AdapterBase.at(LTX)
    assert {layer.component for layer in clips.names.weights} == {"transformer"}
    assert (adapter_files.usual_layout(folder), adapter_files.usual_layout(clips)) == ("kohya", "diffusers")


def test_non_model_files_are_refused_with_message(tmp_path: Path) -> None:
    for path, code in ((tmp_path, "E1442"), (tmp_path / "nosuch", "E1401")):
        with pytest.raises(WeightsError) as caught:
            AdapterBase.at(path)
        assert caught.value.code == code


@pytest.mark.parametrize("name", ["sd_lora_r4_a8.kohya.safetensors", "sd_lora_text_r4.diffusers"])
@pytest.mark.parametrize("verb", ["sample", "check"])
def test_adapter_given_as_model_suggests_the_right_command(
    verb: str, name: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = str(FILES / name)
    words = [place, "--prompt=x"] if verb == "sample" else ["tiny_cpu", f"model.path={place}", "model.weights=files"]
    assert main([verb, *words]) == 2
    complaint = capsys.readouterr().err
    assert "error[E1406]" in complaint
    assert "a LoRA adapter" in complaint
    for line in ("sample MODEL --adapter=FILE", "merge MODEL FILE NEW_FILE", "model.adapter.path=FILE", "--base=MODEL"):
        assert line in complaint


def test_layers_are_read_in_groups_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    names = AdapterBase.at(SD).names
    layers = list(names.weights)
    monkeypatch.setattr("mezzotint.weights.single_file.planned.CHUNK", 1 << 16)
    portions = list(adapter_files.portions(layers, names))
    assert [layer for _, portion in portions for layer in portion] == layers
    assert len(portions) > 5
    for component, portion in portions:
        assert {layer.component for layer in portion} == {component}
