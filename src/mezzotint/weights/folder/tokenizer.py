"""Tokenizers of model folders, which come from strangers: whatever the tokenizers library raises becomes one error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def tokenize_padded(tokenizer: Any, texts: Sequence[str], *, length: int) -> Any:
    """Tokens and their mask, (B, length) int64; what does not fit is cut off. Raises WeightsError E1409, also for
    numbers beyond the vocabulary, which the text encoder would not have."""
    tokens = tokenize(tokenizer, texts, padding="max_length", max_length=length, truncation=True, return_tensors="pt")
    if int(tokens.input_ids.max()) >= len(tokenizer):
        raise WeightsError(
            f"{tokenizer.name_or_path}: the tokenizer makes token {int(tokens.input_ids.max()):,} and has "
            f"{len(tokenizer):,}; take another copy of the model's tokenizer",
            code="E1409",
        )
    return tokens
