"""`mezzotint caption`: captions by a command or a model, resumable, reviewed, undone as one edit."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.cli import main
from mezzotint.data.editing.editor import DataEditor
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings
from mezzotint.tasks.caption import caption, models
from support.image_catalogues import paint

Caption = Callable[..., int]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    paint(tmp_path / "data" / "a", 3, size=(32, 32))
    (tmp_path / "data" / "a" / "001.txt").write_text("by hand")
    for name in ("000", "002"):
        (tmp_path / "data" / "a" / f"{name}.txt").unlink()
    return tmp_path / "data"


@pytest.fixture
def captioned(root: Path, tmp_path: Path) -> Caption:
    def run(code: str, *more: str) -> int:
        """Runs the command with a Python program as the captioner."""
        (tmp_path / "program.py").write_text(f"import sys, time\npath = sys.argv[1]\n{code}\n")
        command = f"'{sys.executable}' -I '{tmp_path / 'program.py'}' {{image}}"
        return main(["caption", str(root), f"--with={command}", f"data.cache.path={tmp_path / 'cache'}", *more])

    return run


NAME = "print(' the', path[-7:-4], '\\n')"


def texts_of(root: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted(root.rglob("*.txt"))}


def test_command_captions_what_has_none(root: Path, captioned: Caption, capsys: pytest.CaptureFixture[str]) -> None:
    assert captioned(NAME) == 0
    assert "2 captions written" in capsys.readouterr().out
    assert texts_of(root) == {"000": "the 000\n", "001": "by hand", "002": "the 002\n"}
    lines = [json.loads(line) for line in (root / "a" / "mezzotint.jsonl").read_text().splitlines()]
    assert lines == [{"file": "000.png", "review": True}, {"file": "002.png", "review": True}]
    assert captioned("raise SystemExit(1)") == 0, "nothing is left to do"
    assert captioned("print('again')", "--again") == 0, "what waits for review is kept"
    assert texts_of(root) == {"000": "the 000\n", "001": "again", "002": "the 002\n"}
    editor = DataEditor(root, DataSettings(path=root))
    editor.undo()
    assert texts_of(root)["001"] == "by hand"
    editor.undo()
    assert texts_of(root) == {"001": "by hand"}
    assert not (root / "a" / "mezzotint.jsonl").exists()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("print('half'); sys.stderr.write('no\\x1b[31m memory\\n'); sys.exit(3)", r"exit status 3: no\x1b[31m memory"),
        ("pass", "no text was given"),
        ("time.sleep(60)", "it took longer than 1 seconds"),
        ("print('x' * 1_000_002)", "the text has more than 1,000,000 bytes"),
        ("sys.stdout.buffer.write(b'\\xff')", "what it prints is not UTF-8"),
        ("print('a\\0b')", "the text has more than 1,000,000 bytes, or NUL"),
    ],
)
def test_image_without_a_caption_is_named_and_tried_again(
    root: Path, captioned: Caption, capsys: pytest.CaptureFixture[str], code: str, why: str
) -> None:
    assert captioned(f"if '002' in path:\n    {code}\nelse:\n    {NAME}", "--timeout=1") == 2
    error = capsys.readouterr().err
    assert "E1266" in error
    assert f"a/002.png: {why}" in error
    assert texts_of(root) == {"000": "the 000\n", "001": "by hand"}
    assert captioned(NAME) == 0
    assert "002" in texts_of(root)


def test_names_are_arguments_and_no_shell_runs(root: Path, captioned: Caption, tmp_path: Path) -> None:
    name = "$(touch hacked);`touch hacked` & \"'\n-rf --help %s {image}.png"
    (root / "a" / "000.png").rename(root / "a" / name)
    assert captioned("print(path.count('hacked'), len(sys.argv))") == 0
    assert (root / "a" / name.replace(".png", ".txt")).read_text() == "2 2\n"
    assert not list(tmp_path.rglob("hacked"))


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ([], "E1012", "one of the two"),
        (["--with=cat {image}", "--model=x"], "E1012", "one of the two"),
        (["--with=cat"], "E1012", "{image}"),
        (["--with={image}"], "E1012", "{image}"),
        (["--with='cat {image}"], "E1012", "split"),
        (["--with=no-such-program {image}"], "E1012", "no program"),
        (["--with=cat {image}", "--prompt=x"], "E1012", "--prompt needs --model"),
        (["--with=cat {image}", "gone"], "E1012", "one data set"),
        (["--with=cat {image}", "data.captions.source=filename"], "E1260", "names of files"),
        (["--model=gone"], "E1267", "not a folder"),
    ],
)
def test_unusable_command_lines_are_refused(
    root: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: str, why: str
) -> None:
    assert main(["caption", str(root), f"data.cache.path={root.parent / 'cache'}", *words]) == 2
    error = capsys.readouterr().err
    assert code in error
    assert why in error


def test_killed_command_goes_on_where_it_was(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paint(root / "a", 12, size=(32, 32))
    for path in root.rglob("*.txt"):
        path.unlink()
    program = tmp_path / "slow.py"
    program.write_text("import os, sys\nopen('log', 'a').write(sys.argv[1] + '\\n')\nprint(sys.argv[1][-7:])\n")
    monkeypatch.setattr(caption, "_WRITE_SECONDS", 0)
    line = [str(root), f"--with={sys.executable} -I {program} {{image}}", "data.cache.path=cache"]
    child = os.fork()
    if not child:
        os.setsid()
        caption.run(line)
        os._exit(0)
    until = time.monotonic() + 60
    while len(texts_of(root)) < 3 and time.monotonic() < until:
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "it was killed on the way"
    assert caption.run(line) == 0
    assert texts_of(root) == {f"{i:03}": f"{i:03}.png\n" for i in range(12)}
    calls = (tmp_path / "log").read_text().splitlines()
    assert len(calls) <= 14, "only the last ones are captioned again"


def test_caption_changed_meanwhile_is_left_as_it_is(root: Path, captioned: Caption) -> None:
    assert captioned("if '002' in path:\n    open(path[:-3] + 'txt', 'w').write('mine')\nprint('theirs')") == 2
    assert texts_of(root) == {"000": "theirs\n", "001": "by hand", "002": "mine"}


def write_model(folder: Path, template: str) -> None:
    """A tiny Llava with random weights."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        CLIPImageProcessor,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
        PreTrainedTokenizerFast,
    )

    words = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", "<image>", "?", "fox", "red", "describe"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="?",
        additional_special_tokens=["<image>"],
    )  # fmt: skip
    sides = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**sides, image_size=16, patch_size=8),
        text_config=LlamaConfig(**sides, vocab_size=len(words), max_position_embeddings=512),
        image_token_index=3, vision_feature_layer=-1,
    )  # fmt: skip
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    size = {"height": 16, "width": 16}
    images = CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=size)
    LlavaProcessor(
        images,
        fast,
        patch_size=8,
        vision_feature_select_strategy="default",
        chat_template=template,
        num_additional_image_tokens=1,
    ).save_pretrained(folder)


TEMPLATE = (
    "{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}<image> {% else %}{{ c['text'] }}"
    "{% endif %}{% endfor %}{% endfor %}"
)


@pytest.mark.slow
def test_local_model_captions(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    torch.manual_seed(3)
    write_model(root.parent / "model", TEMPLATE)
    line = [
        "caption",
        str(root),
        f"data.cache.path={root.parent / 'cache'}",
        "--model=model",
        "--prompt=describe red fox",
    ]
    assert main(line) == 0
    texts = texts_of(root)
    assert set(texts) == {"000", "001", "002"}
    assert set(texts["000"].split()) <= {"fox", "red", "describe", "?"}
    assert "<image>" not in texts["000"]


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}x",
        "{{ 'x' * 20000000000 }}", "{{ raise_exception('no') }}", "{% if %}",
    ],
)  # fmt: skip
def test_template_of_a_model_is_bounded(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    class Processor:
        chat_template = template

        def apply_chat_template(self, messages: object, **_: object) -> str:
            texts, _ = render_jinja_template([messages], chat_template=template)
            return str(texts[0])

    monkeypatch.setattr(models, "_TEMPLATE_SECONDS", 1)
    with pytest.raises(DatasetError, match="chat template") as caught:
        models.write_prompt(Processor(), "x")
    assert caught.value.code == "E1267"


def test_code_and_pickles_of_a_model_are_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = root.parent / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}')
    (folder / "processor_config.json").write_text(
        '{"processor_class": "Evil", "auto_map": {"AutoProcessor": "evil.E"}}'
    )
    (folder / "evil.py").write_text(f"open({str(root / 'hacked')!r}, 'w')\nclass Evil: pass\nclass E: pass\n")
    assert main(["caption", str(root), f"data.cache.path={root.parent / 'cache'}", f"--model={folder}"]) == 2
    assert "E1267" in capsys.readouterr().err
    assert not (root / "hacked").exists()


def test_captions_go_into_the_table_of_the_folder(root: Path, captioned: Caption) -> None:
    table = root / "metadata.jsonl"
    table.write_text('{"file_name": "a/000.png", "n": 1}\n{"file_name": "a/001.png", "text": "by hand"}\n')
    assert captioned(NAME) == 0
    rows = table.read_text().splitlines()
    assert rows == [
        '{"file_name": "a/000.png", "n": 1, "text": "the 000"}',
        '{"file_name": "a/001.png", "text": "by hand"}',
    ]
    assert not (root / "a" / "000.txt").exists()
