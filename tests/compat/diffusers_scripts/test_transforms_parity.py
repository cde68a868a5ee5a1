"""Pixels of diffusers' script, recorded, against ours: from files to a batch, with the settings of its command.

Release 0.26.3 is always bilinear; head is lanczos unless its flag says otherwise. Six images: larger and smaller than
the side, square, wide, tall, and one whose longer side does not come out whole.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.schedule.placement import at_visit
from mezzotint.data.schedule.plan import Visit
from mezzotint.settings.reading.translation import Launched
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.tasks.reading import foreign
from support.loading import open_loader

DATA = Path(__file__).parents[2] / "parity" / "data" / "diffusers"

pytestmark = pytest.mark.numbers
RECORD: dict[str, Any] = json.loads((DATA / "transforms.json").read_text())
BYTES = load_file(DATA / "transforms_uint8.safetensors")
VERSIONS = {
    "0.26.3": ("bilinear", []),
    "head": ("lanczos", ["--image_interpolation_mode=lanczos"]),
    "head, bilinear": ("bilinear", ["--image_interpolation_mode=bilinear"]),
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parity") / "images"
    shutil.copytree(DATA / "shapes6", folder)
    lines = [json.dumps({"file_name": f"{int(number):04}.png", "text": f"shape {number}"}) for number in RECORD]
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    return folder


def settings_of(images: Path, *flags: str) -> DataSettings:
    """Those of the script's command, one image per batch."""
    line = ["--pretrained_model_name_or_path=sd", f"--train_data_dir={images}", "--resolution=64", "--center_crop",
            "--train_batch_size=1", *flags]  # fmt: skip
    return foreign.read_command_line("diffusers-sd", line, (), Launched()).recipe.data


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_images_are_bit_exact(version: str, images: Path, tmp_path: Path) -> None:
    filter_name, flags = VERSIONS[version]
    settings = settings_of(images, *flags)
    catalogue = catalogues.build(settings, tmp_path, workers=1)
    rows = np.arange(len(catalogue), dtype=np.int32)
    with open_loader(catalogue, rows, settings, accumulation=1, seed=0, start_step=0, last_step=len(RECORD)) as loader:
        batches = [batch for step in loader for batch in step.batches]
    assert {key for batch in batches for key in batch.keys} == {f"{int(number):04}.png" for number in RECORD}
    for batch in batches:
        number = str(int(Path(batch.keys[0]).stem))
        facts, recorded = RECORD[number], BYTES[f"{number}.{filter_name}.center_crop"].float()
        assert batch.pixels is not None
        # as the script makes a number of a byte: divided by 255, 0.5 taken away, divided by 0.5
        assert torch.equal(batch.pixels[0], (recorded / 255 - 0.5) / 0.5), f"image {number}"
        assert batch.original_size.tolist() == [facts["original_height_width"]]
        assert batch.crop_top_left.tolist() == [facts["sdxl_center_crop_top_left"]]


def test_longer_side_is_truncated_to_whole_pixels(images: Path, tmp_path: Path) -> None:
    settings = settings_of(images)
    catalogue = catalogues.build(settings, tmp_path, workers=1)
    for row in range(len(catalogue)):
        facts = RECORD[str(int(Path(catalogue.key(row)).stem))]
        placed = at_visit(catalogue, Visit(row, 1, 0, 0, 0), Size(64, 64), settings)
        assert [placed.resized.height, placed.resized.width] == facts["resized_height_width"]
        assert list(placed.crop_top_left) == facts["sdxl_center_crop_top_left"]
    exact = [
        64 * max(facts["original_height_width"]) / min(facts["original_height_width"]) for facts in RECORD.values()
    ]
    assert any(side % 1 > 0.5 for side in exact), "no recorded image distinguishes truncation from rounding"
