"""Sample prompt files, and when they are sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kohya_data_lines import notes, problems, settings

from mezzotint.compat.kit.sample_prompts import read_line
from mezzotint.compat.kohya._prompts import KEYS

LINE = ("--train_data_dir=images", "--resolution=512")
EACH = (*LINE, "--sample_every_n_epochs=1")
FLUX = ("--script=flux_train_network", "--network_module=networks.lora_flux", "--model_prediction_type=raw")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "prompts.txt") -> str:
    Path(name).write_text(text, "utf-8")
    return f"--sample_prompts={name}"


def sampled(*words: str) -> dict[str, Any]:
    values = settings(*EACH, *words)
    return {path.removeprefix("sample."): value for path, value in values.items() if path.startswith("sample.")}


@pytest.mark.parametrize(
    ("line", "text", "options", "dropped"),
    [
        ("a fox", "a fox", {}, []),
        ("a fox --w 512 --h 768 --d 1 --s 28 --l 7.5 --n bad, worse", "a fox",
         {"width": 512, "height": 768, "seed": 1, "sample_steps": 28, "scale": 7.5, "negative_prompt": "bad, worse"},
         []),
        ("a --W 512 --SS euler_a --fs 3.1 --g 2 --cn x.png --ctr .5 --rcfg 1", "a",
         {"width": 512, "sample_sampler": "euler_a", "flow_shift": 3.1, "guidance_scale": 2.0,
          "controlnet_image": "x.png", "cfg_trunc_ratio": 0.5, "renorm_cfg": 1.0}, []),
        ("a --s 0 --z 3 --w x --d -1", "a", {"sample_steps": 1}, ["z 3", "w x", "d -1"]),
        ("a--b --s 5000", "a--b", {"sample_steps": 1000}, []),
    ],
)  # fmt: skip
def test_options_follow_a_prompt(line: str, text: str, options: dict[str, Any], dropped: list[str]) -> None:
    prompt, others = read_line(line, KEYS)
    assert (prompt.text, dict(prompt.options), others) == (text, options, dropped)


def test_text_file_that_mezzotint_reads_is_named() -> None:
    file = write("# one\na fox --w 768 --h 512 --d 1 --n bad\n\na dog\n")
    values = sampled(file)
    assert values.pop("solver") == "ddim"
    assert values == {
        "prompt_file": "prompts.txt", "size": [512, 512], "seed": -1, "steps": 30, "guidance": [7.5],
        "negative_prompt": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "solver", "steps", "guidance"),
    [
        ((), "ddim", 30, [7.5]),
        (("--sample_sampler=k_dpm_2_a",), "dpm2-a", 30, [7.5]),
        (("--script=sdxl_train_network", "--network_module=networks.lora"), "ddim", 30, [7.5]),
        (FLUX, None, 20, [3.5]),
        ((*FLUX, "--model_type=chroma", "--apply_t5_attn_mask"), None, 20, [1.0]),
    ],
)
def test_scripts_have_their_defaults(words: tuple[str, ...], solver: str | None, steps: int, guidance: Any) -> None:
    values = sampled(*words, write("a --w 500 --h 512"))
    assert (values.get("solver"), values["steps"], values["guidance"]) == (solver, steps, guidance)
    assert (values["prompts"], values["size"]) == (["a"], [496, 512])


TABLES = {
    "p.toml": "[prompt]\nwidth = 768\nsample_steps = 9\n[[prompt.subset]]\nprompt = 'a'\nseed = 1\n"
    "[[prompt.subset]]\nprompt = 'b'\nseed = 1\n",
    "p.json": '[{"prompt": "a", "width": 768, "seed": 1, "sample_steps": 9}, "b --w 768 --d 1 --s 9"]',
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_become_prompts_with_common_options(name: str) -> None:
    values = sampled(write(TABLES[name], name))
    assert (values["prompts"], values["size"], values["seed"], values["steps"]) == (["a", "b"], [768, 512], 1, 9)


def test_options_that_differ_are_those_of_the_first_prompt() -> None:
    file = write('["a --w 768 --d 1 --ss euler_a", "b --n bad --d 2"]', "p.json")
    values = sampled(file)
    assert (values["prompts"], values["size"], values["seed"], values["negative_prompt"]) == (
        ["a", "b"],
        [768, 512],
        1,
        "",
    )
    text = notes(*EACH, file)
    assert [f"has several {name}" in text for name in ("sizes", "seeds", "negative prompts", "scales")] == [
        True
    ] * 3 + [False]
    assert "has samplers of single prompts; ddim is used for all" in text


@pytest.mark.parametrize(
    ("lines", "words", "note"),
    [
        ("a --fs 3", (), "a flow shift of single prompts (flow_shift)"),
        ("a --cn x.png", (), "control images (controlnet_image)"),
        ("a --zz 3", (), "prompts.txt line 1: --zz 3 is dropped"),
        ("a --l 2", FLUX, "scale (--l) is classifier-free guidance"),
        ("a --g 2", (), "guidance_scale (--g) is for FLUX.1"),
        ("(a:1.2)", (), "brackets and weights such as (word:1.2)"),
        ("a", ("--sample_sampler=dpmsolver",), "dpmsolver++ is used"),
        ("a", (*FLUX, "--sample_sampler=heun"), "sampled with Euler"),
        ("a", ("--sample_every_n_steps=5",), "has no effect with --sample_every_n_epochs"),
        ("a", (), "before the first step, too"),
    ],
)
def test_what_differs_is_noted(lines: str, words: tuple[str, ...], note: str) -> None:
    assert note in notes(*EACH, *words, write(lines))


@pytest.mark.parametrize(
    ("words", "every"),
    [
        (("--sample_every_n_steps=5",), "5 steps"), (("--sample_every_n_epochs=2",), "2 epochs"),
        (("--sample_every_n_steps=5", "--sample_every_n_epochs=2"), "2 epochs"),
        (("--sample_at_first",), "1000000 epochs"), ((), None),
    ],
)  # fmt: skip
def test_intervals(words: tuple[str, ...], every: str | None) -> None:
    file = write("a fox")
    assert settings(*LINE, file, *words).get("run.preview.every") == every
    assert settings(*LINE, *words).get("run.preview.every") is None
    text = notes(*LINE, file, *words)
    assert ("nothing is sampled without" in text) == (every is None)
    assert ("before the first step" in text) == (every is not None and "--sample_at_first" not in words)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.txt", None, "none.txt cannot be read: No such file or directory"),
        ("p.txt", "\n# nothing\n", "has no prompt"),
        ("p.toml", "[prompt]\nwidth = 512\n", "has no prompts; write [[prompt.subset]]"),
        ("p.toml", "[prompt]\nwidht = 512\n[[prompt.subset]]\nprompt = 'a'\n",
         "prompt.widht in p.toml, line 2: unknown key; did you mean width?"),
        ("p.json", '{"prompt": "a"}', "is not a list of prompts"),
        ("p.json", '[{"prompt": "a", "width": "big"}]', "0.width in p.json, line 1: must be an integer, got 'big'"),
        ("p.json", "[3]", "must be an object with a prompt"),
        ("p.json", '[{"prompt": "a"', "p.json line 1 is not JSON"),
    ],
)  # fmt: skip
def test_malformed_files_are_refused(name: str, content: str | None, message: str) -> None:
    if content is not None:
        Path(name).write_text(content, "utf-8")
    [problem] = problems(*EACH, f"--sample_prompts={name}")
    assert (problem.where, problem.code) == ("--sample_prompts", "E1017")
    assert message in problem.message


def test_intervals_below_one_are_refused() -> None:
    assert problems(*LINE, write("a"), "--sample_every_n_steps=0")[0].code == "E1017"


def test_guidance_of_flux_is_its_own_option() -> None:
    assert sampled(*FLUX, write("a --g 2 --l 4"))["guidance"] == [2.0]
    assert "prompt_file" not in sampled(*FLUX, write("a --l 4"))
    assert sampled(*FLUX, write("a --w 512"))["prompt_file"] == "prompts.txt"


def test_prompts_of_a_line_are_read_as_those_of_a_file() -> None:
    values = sampled("--prompt", "a fox --w 768 --h 768", "a dog --w 768 --h 768")
    assert (values["prompts"], values["size"]) == (["a fox", "a dog"], [768, 768])
