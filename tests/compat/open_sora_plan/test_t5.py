"""T5's encoder and its vocabulary, as the model's own library has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from latte_folder import settings
from transformers import T5Config, T5EncoderModel, T5TokenizerFast

from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.errors import WeightsError
from mezzotint.weights.folder import t5


def test_embeddings_match_transformers_t5(released: Path) -> None:
    family = Family.of(settings(released), only=["text_encoder"])
    config = T5Config.from_pretrained(str(released / "t5"))
    theirs = T5EncoderModel.from_pretrained(str(released / "t5"), config=config, local_files_only=True).eval()
    ours = family.encode_text(["a red ball and a cat", ""])
    assert ours.states.shape == (2, 24, 32)
    assert ours.mask is not None
    assert ours.mask.sum(1).tolist() == [7, 1]
    ids = T5TokenizerFast.from_pretrained(str(released / "t5"))(
        ["a red ball and a cat", ""], padding="max_length", max_length=24, return_tensors="pt"
    )
    with torch.no_grad():
        expected = theirs(ids.input_ids, attention_mask=ids.attention_mask).last_hidden_state
    torch.testing.assert_close(ours.states, expected, rtol=0, atol=1e-5)
    assert family.encode_text([]).states.shape == (0, 24, 32)
    assert family.lost_tokens(["cat " * 40, "cat"]) == (17, 0)
    short = Family.of(settings(released, max_tokens=5), only=["text_encoder"]).encode_text(["a red ball and a cat"])
    assert short.states.shape == (1, 5, 32)


def test_float16_t5_keeps_its_last_layers_in_float32(released: Path) -> None:
    family = Family.of(settings(released), only=["text_encoder"])
    encoder: Any = family.parts()["text_encoder"]
    exact = family.encode_text(["a cat"]).states
    with torch.no_grad():
        for block in encoder.encoder.block:  # what is after its inner product exceeds float16
            block.layer[-1].DenseReluDense.wi_0.weight *= 2000
            block.layer[-1].DenseReluDense.wi_1.weight *= 2000
    encoder.half()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = family.encode_text(["a cat"]).states
    assert rounded.dtype == torch.float16
    assert encoder.encoder.block[0].layer[-1].DenseReluDense.wo.weight.dtype == torch.float32
    assert encoder.encoder.block[0].layer[0].SelfAttention.q.weight.dtype == torch.float16
    assert rounded.shape == exact.shape


def test_sentencepiece_vocabulary_is_read_without_the_library(tmp_path: Path) -> None:
    from transformers.utils import sentencepiece_model_pb2_new as pb  # of protobuf, which transformers brings

    proto = pb.ModelProto()
    for piece, score in (("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -2.0), ("▁cat", -3.0), ("s", -4.0)):
        proto.pieces.add(piece=piece, score=score)
    (tmp_path / "spiece.model").write_bytes(proto.SerializeToString())
    tokenizer = t5.tokenizer_in(tmp_path, vocabulary=128)
    assert tokenizer(["a cats"], padding="max_length", max_length=6).input_ids == [[3, 4, 5, 1, 0, 0]]
    assert len(tokenizer) == 6 + 100
    (tmp_path / "spiece.model").write_bytes(proto.SerializeToString()[:-3])
    with pytest.raises(WeightsError, match="tokenizer cannot be used") as met:
        t5.tokenizer_in(tmp_path, vocabulary=128)
    assert met.value.code == "E1463"
