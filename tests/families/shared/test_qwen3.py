"""Chat templates and tokenizers of untrusted model folders: known templates are accepted, none is run."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from mezzotint.errors import WeightsError
from mezzotint.families.shared import qwen3
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped_folder
from mezzotint.weights.folder.t5 import tokenizer_in
from mezzotint.weights.folder.tokenizer import tokenizer_errors

CAPTIONS = ["a red circle", "", "{x} {{ 1 }} <|im_end|> été\n two lines ", "<tool_response>x</tool_response>"]
FAMILIES = ("z-image", "flux2")


def folder_of(family: str, place: Path) -> Path:
    return Path(shutil.copytree(shipped_folder(f"tiny-{family}"), place / "model"))


def files_of(family: str, folder: Path, **own: Any) -> Any:
    values: dict[str, Any] = {"family": family, "path": folder, "weights": "random", family.replace("-", "_"): own}
    kind = importlib.import_module(f"mezzotint.families.{family.replace('-', '_')}").Family
    return kind.files.of(ModelSettings.model_validate(values))


def counts(family: str, folder: Path, **own: Any) -> tuple[int, ...]:
    kind = importlib.import_module(f"mezzotint.families.{family.replace('-', '_')}").Family
    lengths: tuple[int, ...] = kind.load(files_of(family, folder, **own), only=[]).token_counts(CAPTIONS)[0]
    return lengths


def change(file: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(file.read_text("utf-8"))
    edit(content)
    file.write_text(json.dumps(content), "utf-8")


def refusal(run: Callable[[], object], code: str = "E1409") -> str:
    with pytest.raises(WeightsError) as caught:
        run()
    assert caught.value.code == code
    return str(caught.value)


@pytest.mark.parametrize("thinking", [True, False])
def test_captions_equal_those_of_the_known_chat_template(thinking: bool) -> None:
    template = files_of("z-image", shipped_folder("tiny-z-image")).tokenizer("text_encoder").apply_chat_template
    rendered = [
        template(
            [{"role": "user", "content": caption}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
        for caption in CAPTIONS
    ]
    assert qwen3.write_chat(CAPTIONS, thinking=thinking) == rendered


UNKNOWN = {
    "without end": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}x",
    "all the memory": "{{ 'x' * 20000000000 }}",
    "an escape": "{{ raise_exception('x\x1b[31m') }}",
    "half a tag": "{% if %}",
    "no text": "",
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("template", UNKNOWN.values(), ids=list(UNKNOWN))
def test_unknown_chat_template_is_refused_and_never_run(
    family: str, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PreTrainedTokenizerBase, "apply_chat_template", lambda *_, **__: pytest.fail("it was run"))
    folder = folder_of(family, tmp_path)
    known = counts(family, folder)
    file = folder / "tokenizer" / "chat_template.jinja"
    file.write_text(template)
    setting = f"model.{family.replace('-', '_')}.ignore_chat_template=true"
    message = refusal(lambda: counts(family, folder))
    assert str(file) in message
    assert setting in message
    assert "\x1b" not in message
    assert counts(family, folder, ignore_chat_template=True) == known


def test_chat_template_is_found_in_each_file_that_transformers_reads(tmp_path: Path) -> None:
    folder = folder_of("z-image", tmp_path)
    words, config = folder / "tokenizer", folder / "tokenizer" / "tokenizer_config.json"
    known = (words / "chat_template.jinja").read_text()
    before = counts("z-image", folder)
    (words / "chat_template.jinja").unlink()
    assert counts("z-image", folder) == before, "without a template"
    for template, is_known in ((known, True), (known + "\n", True), ("{{ 1 }}", False), ([], False)):
        change(config, lambda content, template=template: content.update(chat_template=template))
        if is_known:
            assert counts("z-image", folder) == before
        else:
            assert str(config) in refusal(lambda: counts("z-image", folder))
    change(config, lambda content: content.pop("chat_template"))
    (words / "additional_chat_templates").mkdir()
    (words / "additional_chat_templates" / "tool_use.jinja").write_text("{{ 1 }}")
    assert "chat template" in refusal(lambda: counts("z-image", folder))


def test_qwen_image_ignores_the_chat_template(tmp_path: Path) -> None:
    """Its captions are put in a fixed sentence, as in diffusers' pipeline."""
    folder = folder_of("qwen-image", tmp_path)
    before = counts("qwen-image", folder)
    (folder / "tokenizer" / "chat_template.jinja").write_text(UNKNOWN["without end"])
    assert counts("qwen-image", folder) == before


def test_huge_chat_template_is_not_read(tmp_path: Path) -> None:
    folder = folder_of("z-image", tmp_path)
    with open(folder / "tokenizer" / "chat_template.jinja", "wb") as file:
        file.truncate(1 << 40)
    assert "chat_template.jinja: is larger than" in refusal(lambda: counts("z-image", folder))


def _template_processing(*, known: bool, number: int = 1) -> Callable[[dict[str, Any]], object]:
    special = {"[X]": {"id": "[X]", "ids": [number], "tokens": ["[X]"]}} if known else {}
    parts = [{"SpecialToken": {"id": "[X]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*parts, {"Sequence": {"id": "B", "type_id": 0}}]
    processor = {"type": "TemplateProcessing", "single": parts, "pair": pair, "special_tokens": special}
    return lambda content: content.update(post_processor=processor)


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "a panic while it is read": lambda content: content.update(
        normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    ),
    "a panic with the first caption": _template_processing(known=False),
    "a token of nobody's": _template_processing(known=True, number=99_999_999),
    "no token at all": lambda content: content.update(
        post_processor={"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
    ),
    "a pair of words that are not there": lambda content: content["model"].update(merges=[["a\x1b[31m", "zz"]]),
    "a list": lambda content: content.update(model=[]),
}


@pytest.mark.parametrize("family", [*FAMILIES, "qwen-image"])
@pytest.mark.parametrize("edit", BROKEN.values(), ids=list(BROKEN))
@torch.no_grad()
def test_broken_tokenizer_is_refused_by_name(
    family: str, edit: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    folder = folder_of(family, tmp_path)
    change(folder / "tokenizer" / "tokenizer.json", edit)
    kind = importlib.import_module(f"mezzotint.families.{family.replace('-', '_')}").Family
    model = kind.load(files_of(family, folder), only=["text_encoder"])
    message = refusal(lambda: model.encode_text(CAPTIONS))
    assert str(folder / "tokenizer") in message
    assert "\x1b" not in message


def test_panic_in_the_t5_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(shipped_folder("tiny-ltx") / "tokenizer", tmp_path / "words"))
    change(folder / "tokenizer.json", BROKEN["a panic while it is read"])
    assert str(folder) in refusal(lambda: tokenizer_in(folder, 1 << 20), "E1463")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError])
def test_other_exceptions_are_not_caught(kind: type[BaseException]) -> None:
    with pytest.raises(kind), tokenizer_errors("words"):
        raise kind
