"""Tokenizers of model folders, which come from strangers: whatever the tokenizers library raises becomes one error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mezzotint.errors import MezzotintError, WeightsError


@contextmanager
def tokenizer_errors(folder: Path | str, *, code: str = "E1409") -> Iterator[None]:
    """Within, every failure of the library is a WeightsError that names the folder. Its Rust half panics, too: a
    PanicException derives from BaseException, and the library does not export its class."""
    try:
        yield
    except (MezzotintError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise WeightsError(
            f"{folder}: the tokenizer cannot be used ({error}); take another copy of the model's tokenizer", code=code
        ) from error


def require_fitting(tokenizer: Any, folder: Path, vocabulary: int, *, code: str = "E1409") -> Any:
    """A tokenizer, if it goes with a text encoder of so many tokens; `tokenize` then names the folder. Raises
    WeightsError of the code given."""
    if not isinstance(tokenizer.model_max_length, int):
        raise WeightsError(f"{folder}: model_max_length is no whole number; take another copy", code=code)
    if len(tokenizer) > vocabulary:
        raise WeightsError(
            f"{folder}: has {len(tokenizer)} tokens, the text encoder knows {vocabulary}; they are of different models",
            code=code,
        )
    tokenizer.name_or_path = str(folder)
    return tokenizer


def tokenize(tokenizer: Any, texts: Sequence[str], **options: Any) -> Any:
    """What the tokenizer of a folder makes of texts. options: as the library takes them. Raises WeightsError E1409."""
    with tokenizer_errors(tokenizer.name_or_path):
        return tokenizer(list(texts), **options)


def tokenize_padded(tokenizer: Any, texts: Sequence[str], *, length: int, start: int = 0) -> tuple[Tensor, Tensor]:
    """Tokens and their mask, (B, length) int64; what does not fit is cut off. start: tokens before the text. Raises
    WeightsError E1409, also where a text has no token, or one beyond the vocabulary, which the text encoder lacks."""
    tokens = tokenize(tokenizer, texts, padding="max_length", max_length=length, truncation=True)
    largest = max(map(max, tokens.input_ids))
    if largest >= len(tokenizer) or not all(any(mask[start:]) for mask in tokens.attention_mask):
        what = f"token {largest:,}, and it has {len(tokenizer):,}" if largest >= len(tokenizer) else "no token"
        raise WeightsError(
            f"{tokenizer.name_or_path}: the tokenizer makes {what} of a caption; take another copy of the model's "
            "tokenizer",
            code="E1409",
        )
    return torch.tensor(tokens.input_ids), torch.tensor(tokens.attention_mask)
