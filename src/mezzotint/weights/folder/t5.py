"""T5 v1.1's encoder, the text encoder of LatteT2V, SD3, Flux and LTX: its files, its network, its tokenizer.

Reads files of the complete T5 or of only the encoder, in safetensors or, through the sandboxed process, torch's
pickles. The vocabulary may be SentencePiece's file (`spiece.model`), which is parsed in this module, or the
`tokenizer.json` of the tokenizers library.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mezzotint import outside
from mezzotint.errors import WeightsError
from mezzotint.weights.files import fingerprint, pickled, protobuf, tensor_files
from mezzotint.weights.files.tensor_files import InFile, TensorInfo
from mezzotint.weights.folder.model_folder import read_json, require_plain, tokenizer_files
from mezzotint.weights.folder.tokenizer import require_fitting, tokenizer_errors

TOKENIZER_FILES = ("tokenizer.json", "spiece.model", "tokenizer_config.json", "special_tokens_map.json")
"""The files of a tokenizer's folder that its tokens depend on."""

_INDEXES = ("pytorch_model.bin.index.json",)
_STEMS = ("model", "pytorch_model")
_NO_WEIGHTS = ("architectures", "torch_dtype", "dtype", "transformers_version", "tie_word_embeddings")
_DECODER = ("decoder.", "lm_head.")
_ALIAS, _TOKEN_TABLE = "encoder.embed_tokens.weight", "shared.weight"
_SPIECE_LIMIT = 1 << 24  # bytes; T5's own has 792 thousand
_SENTINELS = 100
_MOST_SENTINELS = 10_000
_CALLED = {"t5": "T5 v1.1", "umt5": "UMT5"}


@dataclass(frozen=True, slots=True)
class EncoderOnly:
    """Tensors of a T5 encoder in one or several files; implements `Stored`."""

    path: Path
    shards: tuple[Path, ...]

    def header(self) -> dict[str, TensorInfo]:
        """See Stored."""
        return {name: info for name, (_, _, info) in self._tensors().items()}

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored."""
        locations = self._tensors()
        read: dict[str, Tensor] = {}
        for shard in self.shards:
            stored_names = {name: locations[name][1] for name in names if locations[name][0] == shard}
            tensors = InFile(shard).read(tuple(stored_names.values()))
            read |= {name: tensors[stored] for name, stored in stored_names.items()}
        return read

    def iterate(self, names: Collection[str], *, parts: bool = False) -> Iterator[tuple[str, Tensor]]:
        """See IterableStored."""
        locations = self._tensors()
        for shard in self.shards:
            ours = {locations[name][1]: name for name in names if locations[name][0] == shard}
            layer_streamer = tensor_files.iterate(shard, ours, parts=parts)
            yield from ((ours[stored], tensor) for stored, tensor in layer_streamer)

    def digest(self) -> str:
        """A hash that identifies the weights."""
        return fingerprint.of_values({"shards": [fingerprint.of_file(shard) for shard in self.shards]})

    def _tensors(self) -> dict[str, tuple[Path, str, TensorInfo]]:
        """By our names: the shard, the name in it, type and shape."""
        locations: dict[str, tuple[Path, str, TensorInfo]] = {}
        for shard in self.shards:
            for name, info in tensor_files.read_header(shard).items():
                if not name.startswith(_DECODER):
                    locations[name] = (shard, name, info)
        alias = locations.pop(_ALIAS, None)
        if alias is not None:
            locations.setdefault(_TOKEN_TABLE, alias)
        return locations


def has_weights(folder: Path) -> bool:
    """Whether a T5's folder has weights in any format."""
    return any(any(folder.glob(f"*{ending}")) for ending in (".safetensors", ".bin"))


def stored_in(folder: Path) -> EncoderOnly:
    """The weights in a T5's folder. A pickle is converted once, to a safetensors file that is cached. Raises
    WeightsError E1404 for a damaged index, E1407 without weights, E1411 for a pickle that is not plain weights."""
    for stem in _STEMS:
        for name in (f"{stem}.safetensors", f"{stem}.safetensors.index.json"):
            if (folder / name).is_file():
                return EncoderOnly(folder / name, tensor_files.shards(folder / name))
    for name in _INDEXES:
        if (folder / name).is_file():
            return EncoderOnly(folder / name, tuple(map(pickled.readable, _pickled_shards(folder / name))))
    single = folder / "pytorch_model.bin"
    if not single.is_file():
        raise WeightsError(f"{folder}: has no weights file with a known name", code="E1407")
    return EncoderOnly(single, (pickled.readable(single),))


def _pickled_shards(index: Path) -> Iterator[Path]:
    table = read_json(index).get("weight_map")
    names = sorted(set(map(str, table.values()))) if isinstance(table, dict) else []
    for name in names:
        if name != Path(name).name or not (index.parent / name).is_file():
            raise WeightsError(
                f"{index}: names {name!r}, which is not in its folder; download the missing shard", code="E1404"
            )
        yield index.parent / name
    if not names:
        raise WeightsError(f"{index}: not a weights index; it needs a `weight_map` of names to files", code="E1404")


def construct(config: Mapping[str, Any], where: Path, kind: str = "t5") -> nn.Module:
    """Builds the encoder with initial values. where: the configuration's file, for messages. kind: "t5", or "umt5",
    whose relative positions are separate for each layer. Raises WeightsError E1406, E1409."""
    if kind == "t5":  # the import takes a second, which runs with cached text save
        from transformers.models.t5.configuration_t5 import T5Config as Config
        from transformers.models.t5.modeling_t5 import T5EncoderModel as Encoder
    else:
        from transformers.models.umt5.configuration_umt5 import UMT5Config as Config
        from transformers.models.umt5.modeling_umt5 import UMT5EncoderModel as Encoder

    values = {k: v for k, v in config.items() if not k.startswith("_") and k not in _NO_WEIGHTS}
    if values.get("model_type", kind) != kind or not str(values.get("feed_forward_proj", "")).startswith("gated"):
        raise WeightsError(
            f"{where}: model_type is {values.get('model_type', 'missing')}, feed_forward_proj "
            f"{values.get('feed_forward_proj')!r}; the text encoder must be {_CALLED[kind]} (gated-gelu)",
            code="E1406",
        )
    try:
        module = Encoder(Config(**values))
    except (TypeError, ValueError, KeyError, ZeroDivisionError) as error:
        raise WeightsError(
            f"{where}: no network can be built from it ({error}); get another copy", code="E1409"
        ) from error
    del module.encoder.embed_tokens  # a second reference to the same table; `states` uses `shared`
    encoder: nn.Module = module
    return encoder


def states(encoder: Any, ids: Tensor, mask: Tensor | None) -> Tensor:
    """The last hidden states (B, L, D) of tokens (B, L). Tokens with mask 0 are not attended to. With a mask, the
    library checks its values on the host; with None, all tokens are attended to without a host sync.

    In float16 the last layer of each feed-forward block is computed in float32: its values exceed the range of float16
    (as in transformers).
    """
    if encoder.shared.weight.dtype == torch.float16:
        for block in encoder.encoder.block:
            last = block.layer[-1].DenseReluDense.wo
            if last.weight.dtype != torch.float32:  # not by `float()`, which fake tensors of a memory estimate refuse
                last.weight = nn.Parameter(last.weight.detach().float(), last.weight.requires_grad)
    hidden: Tensor = encoder.encoder(inputs_embeds=encoder.shared(ids), attention_mask=mask).last_hidden_state
    return hidden


def tokenizer_in(folder: Path, vocabulary: int) -> Any:
    """The tokenizer of a folder. vocabulary: the encoder's number of tokens. Raises WeightsError E1463."""
    from transformers.models.t5.tokenization_t5 import T5Tokenizer

    require_plain(folder)
    config = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    vocabulary_file = tokenizer_files(folder).get("tokenizer.json")  # a shipped model's is in another folder
    with tokenizer_errors(folder, code="E1463"):
        if vocabulary_file is not None:
            outside.read_json(vocabulary_file, limit=outside.LISTED)  # the library's error is less specific
            tokenizer = T5Tokenizer.from_pretrained(str(vocabulary_file.parent), local_files_only=True)
        elif (folder / "spiece.model").is_file():
            tokenizer = _of_pieces(folder / "spiece.model", _sentinels(config))
        else:
            raise ValueError("it has neither tokenizer.json nor spiece.model")
    return require_fitting(tokenizer, folder, vocabulary, code="E1463")


def _sentinels(config: Mapping[str, Any]) -> int:
    """The number of sentinel tokens in a tokenizer's configuration. Raises ValueError for an impossible number."""
    number = config.get("extra_ids", _SENTINELS)
    if type(number) is not int or not 0 <= number <= _MOST_SENTINELS:
        raise ValueError(f"extra_ids is {number!r:.40}")
    return number


def _of_pieces(path: Path, sentinels: int) -> Any:
    from transformers.models.t5.tokenization_t5 import T5Tokenizer

    pieces, charsmap = _pieces(path)
    vocabulary = [*pieces, *((f"<extra_id_{i}>", 0.0) for i in range(sentinels - 1, -1, -1))]
    return T5Tokenizer(vocab=vocabulary, extra_ids=sentinels, _spm_precompiled_charsmap=charsmap)


def _pieces(path: Path) -> tuple[list[tuple[str, float]], bytes | None]:
    """Pieces with their scores, and the character normalisation table, of SentencePiece's ModelProto: 1 = piece,
    repeated (1 = text, 2 = score); 3 = normalizer (2 = table)."""
    pieces: list[tuple[str, float]] = []
    charsmap: bytes | None = None
    for number, value in protobuf.values(outside.read_bytes(path, limit=_SPIECE_LIMIT)):
        if number == 1 and isinstance(value, bytes):
            piece = dict(protobuf.values(value))
            text, score = piece.get(1), piece.get(2, 0.0)
            if not isinstance(text, bytes) or not isinstance(score, float):
                raise ValueError(f"{path.name} is damaged")
            pieces.append((text.decode("utf-8"), score))
        elif number == 3 and isinstance(value, bytes):
            table = dict(protobuf.values(value)).get(2)
            charsmap = table if isinstance(table, bytes) and table else None
    if not pieces:
        raise ValueError(f"{path.name} contains no pieces")
    return pieces, charsmap
