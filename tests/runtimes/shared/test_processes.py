"""Any text can be exchanged between processes."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.errors import PeerLost
from mezzotint.runtimes.shared import processes


@given(st.text())
def test_a_text_comes_back_as_it_went(text: str) -> None:
    assert processes._decode(processes._encode(text)) == text


@pytest.mark.parametrize(
    "error",
    [
        dist.DistNetworkError("Connection reset by peer"),
        dist.DistStoreError("wait timeout after 61000ms, keys: /1\nframe #0"),
        RuntimeError("[gloo/transport/tcp/pair.cc:144] Connection closed by peer\nframe #0"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_process_that_ends_before_all_have_met_is_no_bug_of_ours(error: RuntimeError) -> None:
    with (
        pytest.raises(PeerLost, match="process 1 could not join the others of this run") as caught,
        processes._rendezvous_errors(1),
    ):
        raise error
    assert (caught.value.code, "frame" in caught.value.message) == ("E1804", False)
    with pytest.raises(RuntimeError, match="another thing"), processes._rendezvous_errors(1):
        raise RuntimeError("another thing")
