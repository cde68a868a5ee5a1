"""Metadata of image files: read by Mezzotint, in the web UI's format, and safe for ComfyUI."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile, PngInfo

from mezzotint import __version__
from mezzotint.sampling import image_files
from mezzotint.sampling.requests import Request
from mezzotint.settings.sections.sample import SampleSettings, SolverName
from mezzotint.shapes import Size

PIXELS = np.zeros((16, 24, 3), np.uint8)


def opened(facts: dict[str, str]) -> PngImageFile:
    image = Image.open(io.BytesIO(image_files.png(PIXELS, facts)))
    assert isinstance(image, PngImageFile)
    return image


def parsed(text: str) -> tuple[str, str, dict[str, str]]:
    """The prompt, the negative one and the settings, as the web UI reads them back (infotext_utils.py)."""
    *lines, last = text.strip().split("\n")
    cut = next((i for i, line in enumerate(lines) if line.startswith("Negative prompt:")), len(lines))
    negative = "\n".join(lines[cut:]).removeprefix("Negative prompt:").strip()
    pairs = re.findall(r'\s*(\w[\w \-/]+):\s*("(?:\\.|[^\\"])+"|[^,]*)(?:,|$)', last)
    return "\n".join(lines[:cut]), negative, {key: json.loads(v) if v[:1] == '"' else v for key, v in pairs}


def facts_of(prompt: str, negative: str = "", *, solver: SolverName = "ddim", name: str = "fox") -> dict[str, str]:
    request = Request(prompt, Size(24, 16), negative=negative, seed=7, index=3, guidance=5.0, solver=solver)
    return image_files.generation_facts(request, SampleSettings(steps=30)) | {"model_name": name, "model": "ab" * 32}


def test_no_chunk_is_named_prompt_or_workflow() -> None:
    """ComfyUI parses these two as JSON before it looks at `parameters`."""
    assert set(opened(facts_of("a red fox")).text) == {"mezzotint", "parameters"}


def test_parameters_have_the_web_ui_format() -> None:
    text = opened(facts_of("a red fox,\nrunning", "dark, ugly", solver="euler-a")).text["parameters"]
    assert text == (
        "a red fox,\nrunning\nNegative prompt: dark, ugly\n"
        f"Steps: 30, Sampler: Euler a, CFG scale: 5, Seed: 7, Size: 24x16, Model: fox, Version: mezzotint {__version__}"
    )
    prompt, negative, rest = parsed(text)
    assert (prompt, negative, rest["Seed"]) == ("a red fox,\nrunning", "dark, ugly", "7")


def test_parameters_omit_empty_negative_and_quote_names() -> None:
    text = opened(facts_of("a fox", name='it"s, mine: v2')).text["parameters"]
    prompt, negative, rest = parsed(text)
    assert "Negative" not in text
    assert (prompt, negative) == ("a fox", "")
    assert rest["Model"] == 'it"s, mine: v2'
    assert rest["Size"] == "24x16"


@pytest.mark.parametrize("prompt", ["a red fox", "ein Fuß ☃", 'a "sign", {"not": json}', ""])
def test_own_chunk_holds_everything_as_json(prompt: str) -> None:
    facts = facts_of(prompt)
    image = opened(facts)
    assert json.loads(image.text["mezzotint"]) == facts == image_files.read_record(image)


def test_prompts_written_by_other_programs_are_ignored() -> None:
    info, file = PngInfo(), io.BytesIO()
    for name, text in {"prompt": '{"3": {}}', "workflow": "{}"}.items():
        info.add_itxt(name, text)
    Image.fromarray(PIXELS).save(file, "PNG", pnginfo=info)
    assert image_files.read_record(Image.open(file)) == {}


def test_every_solver_has_a_web_ui_name() -> None:
    solvers = SolverName.__args__  # type: ignore[attr-defined]
    for solver in solvers:
        _, _, settings = parsed(opened(facts_of("a fox", solver=solver)).text["parameters"])
        assert settings["Sampler"] != solver
