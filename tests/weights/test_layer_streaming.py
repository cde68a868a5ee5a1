"""Text encoders with streamed layers: the output is bitwise identical, and only one group of layers is loaded."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mezzotint import registry
from mezzotint.errors import WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.stages import TextEmbedding
from mezzotint.training.precision.policy import cast
from mezzotint.weights.folder.state import Filling
from mezzotint.weights.layer_streaming import LayerStreamer
from mezzotint.weights.low_bit import WeightForm
from support.flow_folders import tiny_flux2_dev

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow"
CAPTIONS = [f"{'a red circle ' * (1 + number % 3)}and {number} blue ones" for number in range(19)]


def open_family(name: str, form: WeightForm, folder: Path | None = None) -> ModelFamily:
    kind: type[ModelFamily] = registry.find("families", name).Family
    place = folder or RECORDS / name.replace("-", "_").replace("flux2", "flux2_klein") / "model"
    files = kind.files.of(ModelSettings.model_validate({"family": name, "path": place}))
    family = kind.load(files, kind.spec.text_parts, dict.fromkeys(kind.spec.text_parts, form))
    for part in family.parts().values():
        cast(part.requires_grad_(False).eval(), form.dtype)
    return family


def encode_captions(family: ModelFamily, layer_streamer: LayerStreamer | None) -> list[TextEmbedding]:
    """Captions in batches of eight, as filling a cache encodes them."""

    def encode(start: int) -> TextEmbedding:
        with torch.no_grad():
            return family.encode_text(CAPTIONS[start : start + 8])

    passes = [partial(encode, start) for start in range(0, len(CAPTIONS), 8)]
    if layer_streamer is None:
        return [encode_batch() for encode_batch in passes]
    waves = range(0, len(passes), layer_streamer.together)
    return [text for first in waves for text in layer_streamer.run(passes[first : first + layer_streamer.together])]


class FillRecorder:
    """Records the bytes of loaded tensors whenever layers are loaded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self.read: list[int] = []
        modules: dict[Filling, nn.Module] = {}
        create, fill = Filling.__init__, Filling.fill

        def created(filling: Filling, module: nn.Module, *others: Any) -> None:
            modules[filling] = module
            create(filling, module, *others)

        def filled(filling: Filling, names: Any) -> None:
            before = size_of(modules[filling])
            fill(filling, names)
            self.most = max(self.most, size_of(modules[filling]))
            self.read.append(size_of(modules[filling]) - before)

        monkeypatch.setattr(Filling, "__init__", created)
        monkeypatch.setattr(Filling, "fill", filled)


def size_of(network: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in network.parameters() if not parameter.is_meta)


def test_streamed_text_encoders_are_bit_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = open_family("sd3", WeightForm(torch.float32))
    expected = encode_captions(whole, None)
    recorder = FillRecorder(monkeypatch)
    layer_streamer = LayerStreamer(1, together=2)
    family = open_family("sd3", WeightForm(torch.float32, layer_streamer=layer_streamer))
    texts = encode_captions(family, layer_streamer)
    assert len(texts) == len(expected) == 3
    for text, other in zip(texts, expected, strict=True):
        for one, two in ((text.states, other.states), (text.mask, other.mask), (text.pooled, other.pooled)):
            assert (one is None) == (two is None)
            assert one is None or torch.equal(one, two)
    largest = max(size_of(part) for part in whole.parts().values())
    assert recorder.most < largest, "layers are freed before others are read"
    groups = [size for size in recorder.read if size > 0]
    assert len(groups) >= 2 * 2 * len(family.parts()), "two waves, each through every layer"


def test_large_group_size_loads_all_layers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encode_captions(open_family("z-image", WeightForm(torch.bfloat16)), None)
    recorder = FillRecorder(monkeypatch)
    layer_streamer = LayerStreamer(1 << 40)
    texts = encode_captions(
        open_family("z-image", WeightForm(torch.bfloat16, layer_streamer=layer_streamer)), layer_streamer
    )
    assert [torch.equal(one.states, two.states) for one, two in zip(texts, expected, strict=True)] == [True] * 3
    assert len(recorder.read) == 2, "all layers at once, after the tensors outside of layers"


def test_quantized_layers_can_be_streamed() -> None:
    pytest.importorskip("torchao")
    expected = encode_captions(open_family("qwen-image", WeightForm(torch.bfloat16, "nf4")), None)
    layer_streamer = LayerStreamer(1, together=2)
    texts = encode_captions(
        open_family("qwen-image", WeightForm(torch.bfloat16, "nf4", layer_streamer=layer_streamer)), layer_streamer
    )
    assert [torch.equal(one.states, two.states) for one, two in zip(texts, expected, strict=True)] == [True] * 3


def test_streamed_language_model_of_a_vision_language_model_is_bit_exact(tmp_path: Path) -> None:
    folder = tiny_flux2_dev(RECORDS / "flux2_klein" / "model", tmp_path / "model")
    expected = encode_captions(open_family("flux2", WeightForm(torch.bfloat16), folder), None)
    layer_streamer = LayerStreamer(1, together=2)
    family = open_family("flux2", WeightForm(torch.bfloat16, layer_streamer=layer_streamer), folder)
    texts = encode_captions(family, layer_streamer)
    assert [torch.equal(one.states, two.states) for one, two in zip(texts, expected, strict=True)] == [True] * 3


def test_layers_are_loaded_on_demand_outside_of_run() -> None:
    expected = open_family("ltx", WeightForm(torch.float32)).encode_text(CAPTIONS[:2]).states
    layer_streamer = LayerStreamer(1)
    family = open_family("ltx", WeightForm(torch.float32, layer_streamer=layer_streamer))
    with torch.no_grad():
        assert torch.equal(family.encode_text(CAPTIONS[:2]).states, expected)
        assert torch.equal(family.encode_text(CAPTIONS[:2]).states, expected)


class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class RecordedFilling:
    """Records the layers that are loaded; loading one of them may fail."""

    def __init__(self, breaks_at: str = "") -> None:
        self.seen: list[tuple[str, ...]] = []
        self.breaks_at = breaks_at

    def fill(self, names: Any) -> None:
        self.seen.append(tuple(names))
        if self.breaks_at and self.breaks_at in self.seen[-1]:
            raise WeightsError("spoilt", code="E1403")

    def free(self, names: Any) -> None:
        pass


def network_of_three_layers(filling: RecordedFilling, layer_streamer: LayerStreamer) -> nn.Module:
    network = nn.Module()
    network.layers = nn.ModuleList(Step() for _ in range(3))
    layer_streamer.take(network, filling, {f"layers.{number}.weight": 4 for number in range(3)})
    return network


def run_layers(network: Any, x: Tensor) -> Tensor:
    for layer in network.layers:
        x = layer(x)
    return x


def test_all_passes_share_each_loaded_layer_and_few_compute_at_once() -> None:
    layer_streamer, filling = LayerStreamer(4), RecordedFilling()
    network, running, most, lock = network_of_three_layers(filling, layer_streamer), 0, 0, threading.Lock()
    before = filling.seen.copy()

    def one(number: int) -> float:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        x = torch.tensor(float(number))
        with lock:
            running -= 1
        return float(run_layers(network, x))

    assert layer_streamer.run([partial(one, number) for number in range(20)], at_once=2) == [n + 3.0 for n in range(20)]
    assert filling.seen[len(before) :] == [(f"layers.{number}.weight",) for number in range(3)]
    assert most <= 2


def test_error_in_a_pass_or_while_loading_ends_all_passes() -> None:
    layer_streamer, before = LayerStreamer(4), set(threading.enumerate())
    network = network_of_three_layers(RecordedFilling(breaks_at="layers.1.weight"), layer_streamer)
    with pytest.raises(WeightsError, match="spoilt"):
        layer_streamer.run([lambda: run_layers(network, torch.zeros(())) for _ in range(5)])

    def failing() -> Tensor:
        raise KeyError("this one")

    sound = network_of_three_layers(RecordedFilling(), layer_streamer)
    with pytest.raises(KeyError, match="this one"):
        layer_streamer.run([lambda: run_layers(sound, torch.zeros(())), failing])
    assert layer_streamer.run([lambda: float(run_layers(sound, torch.zeros(())))]) == [3.0]
    assert set(threading.enumerate()) <= before
