"""The header of adapter files."""

from __future__ import annotations

import json

import pytest
import torch

from mezzotint.adapters import header
from mezzotint.adapters.files import Adapter
from mezzotint.adapters.modules import MAGNITUDE, AdapterModule
from mezzotint.adapters.names import LayerName
from mezzotint.settings.sections.adapter import AdapterSettings
from mezzotint.weights.single_file import modelspec
from mezzotint.weights.single_file.modelspec import Description

LORA = {"lora_down.weight": torch.zeros(4, 8), "lora_up.weight": torch.zeros(8, 4)}


def adapter(kind: str = "lora", **more: torch.Tensor) -> Adapter:
    tensors = {"hada_w1_b": torch.zeros(4, 8)} if kind == "loha" else LORA | more
    small = AdapterModule("lora", {name: tensor[:2] for name, tensor in LORA.items()}, 1.0)
    module = AdapterModule(kind, tensors, 8.0)  # type: ignore[arg-type]
    return Adapter({LayerName("unet", "small"): small, LayerName("unet", "large"): module})


def test_header_has_the_largest_rank_and_its_alpha() -> None:
    words = header.entries(adapter(), AdapterSettings(kind="lora"), {}, None, {"steps": 100})
    assert words == {
        "ss_network_module": "networks.lora", "ss_network_dim": "4", "ss_network_alpha": "8.0", "ss_network_args": "{}",
        "ss_steps": "100",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("of_kind", "module", "algorithm"),
    [
        (adapter("loha"), "lycoris.kohya", "loha"),
        (adapter(**{MAGNITUDE: torch.ones(8)}), "networks.lora", "dora"),
    ],
    ids=["loha", "dora"],
)
def test_header_names_the_algorithm_of_other_kinds(of_kind: Adapter, module: str, algorithm: str) -> None:
    words = header.entries(of_kind, AdapterSettings(kind="lora"), {}, None, {})
    assert words["ss_network_module"] == module
    assert json.loads(words["ss_network_args"]) == {"algo": algorithm}


def test_header_has_base_trigger_and_modelspec_entries() -> None:
    settings = AdapterSettings(kind="lora", trigger="sks")
    described = Description("2", "v", 768, "mine")
    words = header.entries(adapter(), settings, {"vae": "b", "denoiser": "a"}, described, {})
    assert json.loads(words[header.BASE]) == {"denoiser": "a", "vae": "b"}
    assert words["modelspec.architecture"] == "stable-diffusion-v2-768-v/lora"
    assert words["modelspec.trigger_phrase"] == "sks"
    assert (words["ss_base_model_version"], words["ss_v2"]) == ("sd_v2_v", "True")
    assert "sks" in words["ss_tag_frequency"]
    assert modelspec.LEGACY_HASH in words, "filled in when the file is sealed"
