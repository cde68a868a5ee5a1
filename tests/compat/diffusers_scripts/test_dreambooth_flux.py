"""The dialect `diffusers-dreambooth-flux`: a run prepared from its command."""

from __future__ import annotations

from pathlib import Path

import pytest
from prepared_commands import batches, images, largest_changes, prepared, record_inputs


@pytest.mark.slow
def test_transformer_weights_train_with_the_scripts_guidance() -> None:
    images(Path("cat"), 20, 90)
    with prepared("diffusers-dreambooth-flux", "--max_sequence_length=20", "--max_grad_norm=1e9") as job:
        calls, lengths = record_inputs(job), largest_changes(job, batches(job))
        assert {name.partition("/")[0] for name in lengths} == {"denoiser"}
        assert max(lengths.values()) == pytest.approx(1e-2, rel=2e-2)
        assert {float(value) for call in calls for value in call["guidance"]} == {3.5}
        assert {call["encoder_hidden_states"].shape[1] for call in calls} == {20}
