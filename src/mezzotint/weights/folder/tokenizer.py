"""Tokenizers of model folders. The files are untrusted, so every exception of the tokenizers library becomes one
error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mezzotint.errors import MezzotintError, WeightsError


@contextmanager
def tokenizer_errors(folder: Path | str, *, code: str = "E1409", what: str = "tokenizer") -> Iterator[None]:
    """Turns every failure of the library into a WeightsError with the folder. Its Rust code may panic: PanicException
    derives from BaseException, and the library does not export the class. what: what is opened, for the message."""
    try:
        yield
    except (MezzotintError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise WeightsError(
            f"{folder}: the {what} cannot be used ({error}); get another copy of the model's {what}", code=code
        ) from error


def require_fitting(tokenizer: Any, folder: Path, vocabulary: int, *, code: str = "E1409") -> Any:
    """Returns the tokenizer if it fits a text encoder with `vocabulary` tokens, and sets its name for `tokenize`'s
    messages. Raises WeightsError with `code`."""
    if not isinstance(tokenizer.model_max_length, int):
        raise WeightsError(f"{folder}: model_max_length is not an integer; get another copy", code=code)
    if len(tokenizer) > vocabulary:
        raise WeightsError(
            f"{folder}: has {len(tokenizer)} tokens, the text encoder has {vocabulary}; they are of different models",
            code=code,
        )
    tokenizer.name_or_path = str(folder)
    return tokenizer


def tokenize(tokenizer: Any, texts: Sequence[str], **options: Any) -> Any:
    """Tokenizes texts. options: passed to the library. Raises WeightsError E1409."""
    with tokenizer_errors(tokenizer.name_or_path):
        return tokenizer(list(texts), **options)


def tokenize_padded(tokenizer: Any, texts: Sequence[str], *, length: int, start: int = 0) -> tuple[Tensor, Tensor]:
    """Token ids and attention mask, (B, length) int64; longer texts are truncated. start: tokens before the text.
    Raises WeightsError E1409, also where a text gives no token, or one outside the vocabulary."""
    tokens = tokenize(tokenizer, texts, padding="max_length", max_length=length, truncation=True)
    largest = max(map(max, tokens.input_ids))
    if largest >= len(tokenizer) or not all(any(mask[start:]) for mask in tokens.attention_mask):
        result = f"token {largest:,}, it has only {len(tokenizer):,}," if largest >= len(tokenizer) else "no token"
        raise WeightsError(
            f"{tokenizer.name_or_path}: the tokenizer gives {result} for a caption; get another copy of the model's "
            "tokenizer",
            code="E1409",
        )
    return torch.tensor(tokens.input_ids), torch.tensor(tokens.attention_mask)
