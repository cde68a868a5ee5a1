from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mezzotint.settings.sections.run import KernelSettings, RunSettings
from mezzotint.stages import TextEmbedding
from mezzotint.training.whole_batches import pad_batch, resolve_padded_size
from support.trainers import batch_of, latents_at


def test_last_sample_is_repeated_with_weight_zero() -> None:
    """Clips with two joined images each, and text with masks: the images of the last clip are repeated together."""
    clips, joined_images = (
        batch_of(latents_at(0, n), TextEmbedding(torch.arange(n)[:, None], torch.ones(n, 1), lengths=(*range(n),)))
        for n in (2, 4)
    )
    batch = replace(clips, joined_images=joined_images, dropped=torch.tensor([True, False]))
    whole = pad_batch(batch, 4)
    assert (whole.size, whole.keys[:2], whole.positions.tolist()) == (4, batch.keys, [0, 1, 1, 1])
    assert whole.weight.tolist() == [1, 1, 0, 0]
    assert whole.dropped is not None
    assert whole.dropped.tolist() == [True, False, False, False]
    assert whole.joined_images is not None
    assert whole.joined_images.positions.tolist() == [0, 1, 2, 3, 2, 3, 2, 3]
    assert whole.joined_images.weight.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert whole.text is not None
    assert whole.text.states[:, 0].tolist() == [0, 1, 1, 1]
    assert whole.text.lengths == (0, 1, 1, 1)
    assert pad_batch(whole, 4) is whole
    assert pad_batch(whole, 3) is whole


@pytest.mark.parametrize(
    ("compiled", "choice", "processes", "micro_batch", "size"),
    [
        (False, "auto", 1, None, None),
        (True, "auto", 1, None, 8),
        (True, False, 1, None, None),
        (False, True, 3, None, 3),
        (False, True, 1, 5, 5),
        (False, True, 4, 5, 2),
    ],
)
def test_micro_batch_has_the_largest_size_of_its_process(
    compiled: bool, choice: bool, processes: int, micro_batch: int | None, size: int | None
) -> None:
    run = RunSettings(compile=compiled, kernels=KernelSettings(pad_batches=choice), micro_batch=micro_batch)
    assert resolve_padded_size(run, 8, processes) == size
