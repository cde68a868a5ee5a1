"""Folder, saving and previews of a job."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_lines import ALONE, GONE
from jobs import FLUX, job, notes, problems, settings, write

from mezzotint.compat.ai_toolkit.dialect import DIALECT


def samples(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"sample.prompts": GONE, "sample.samples": list(entries)}


def test_samples_may_share_settings() -> None:
    both = {"width": 768, "height": 1024, "seed": 3, "guidance_scale": 4}
    read = settings(samples({"prompt": "a", **both}, {"prompt": "b", **both}))
    assert (read["sample.prompts"], read["sample.size"], read["sample.seed"]) == (["a", "b"], [768, 1024], 3)
    assert read["sample.guidance"] == 4.0
    krea2 = {**FLUX, "model.arch": "krea2", **samples({"prompt": "a", **both})}
    assert settings(krea2)["sample.guidance"] == 3.0


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (samples({"prompt": "a", "width": 768}, {"prompt": "b"}), "sample.samples.0.width"),
        (samples({"prompt": "a"}, {"prompt": "b", "height": 768}), "sample.samples.1.height"),
        (samples({"prompt": "a", "seed": 1}, {"prompt": "b", "seed": 2}), "sample.samples.0.seed"),
        ({"sample.prompts": ["a fox --w 512"]}, "sample.prompts"),
    ],
)
def test_previews_with_settings_of_their_own_wait(changes: dict[str, Any], where: str) -> None:
    [(named, code, message, _)] = problems(job(changes))
    assert (named, code) == (f"{where} in job.yaml", "E1018")
    assert "needs previews with own settings" in message


def test_trigger_is_put_into_prompts() -> None:
    changes = {"trigger_word": "p3r", "sample.prompts": ["a [trigger] on a bench", "a -- b"]}
    assert settings(changes)["sample.prompts"] == ["a p3r on a bench", "a -- b"]


@pytest.mark.parametrize(
    ("sampler", "ours"),
    [("flowmatch", "euler"), ("ddpm", "ddpm"), ("dpmsolver++", "dpm++"), ("euler_a", "euler-a"), ("custom_lcm", "lcm")],
)
def test_samplers_by_name(sampler: str, ours: str) -> None:
    assert settings({**FLUX, "sample.sampler": sampler})["sample.solver"] == ours


def test_unknown_sampler_and_device_are_refused() -> None:
    found = problems(job({"sample.sampler": "magic", "device": "mps"}))
    assert [(where, code) for where, code, *_ in found] == [
        ("device in job.yaml", "E1018"), ("sample.sampler in job.yaml", "E1017"),
    ]  # fmt: skip
    assert any("CUDA_VISIBLE_DEVICES=1" in note for note in notes({"device": "cuda:1"}))


def test_name_with_other_characters_is_changed_with_a_note() -> None:
    tree = job()
    tree["config"]["name"] = "my fox"
    assert settings()["run.name"] == "fox"
    translated = DIALECT.translate([write(tree)], ALONE)
    assert translated.settings["run"]["folder"] == "output/my-fox"
    assert any("config.name in job.yaml: is changed to my-fox" in str(note) for note in translated.notes)
