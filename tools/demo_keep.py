"""`make demo-keep`: mezzotint-mini learns a particular triangle by a LoRA, without and with preservation of triangles.

    python tools/demo_keep.py    one seed: the control, the preserved run, a sheet of images
    python tools/demo_keep.py --seeds=21,22,23,24,25    all seeds and kinds; writes figures, checks criteria

The control is the same training without `objective.preserve`. Task, judge, seeds and criteria are in `mini/keep.py`.
Everything is in `demo/keep/` and can be deleted; a finished run is not repeated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from mezzotint import durable
from mezzotint.adapters import files, merging
from mezzotint.adapters.names import LayerNames
from mezzotint.cli import main
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped_folder

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mini import keep, measure
from mini.adapters import adapter_file
from mini.keep import Exam

HERE = Path("demo/keep")
SETTINGS = (
    "model.train=[denoiser]",
    "model.tokens.words={}",
    "optim.part_lr={}",
    f"data.captions.template='{keep.TEMPLATE}'",
    f"data.captions.trigger='{keep.TRIGGER}'",
    "data.captions.dropout=0",
    "data.cache.text=true",
    "run.preview.every=null",
    "run.drift.every=100 steps",
    *(f"{path}={value}" for path, value in keep.MEASURED.items()),
    f"run.drift.unrelated={keep.measured()}",
)
"""What the lesson asks of the recipe `mini-lora` besides its images."""
STEPS, WEIGHT = 300, 1.25
OF_KIND: Mapping[str, tuple[int, str, float]] = {
    "none": (STEPS, "none", 1),
    "short": (STEPS // 2, "none", 1),
    "both": (STEPS, "[output, prompts]", WEIGHT),
}
"""Steps, and kind and weight of `objective.preserve`; with both kinds each sample draws one of them."""


def settings_of(kind: str) -> list[str]:
    """The settings in which the kinds differ."""
    steps, preserved, weight = OF_KIND[kind]
    settings = [f"run.steps={steps}", f"objective.preserve.kind={preserved}", f"objective.preserve.weight={weight}"]
    return settings + [f"objective.preserve.prompts={keep.preserved()}"] * ("prompts" in preserved)


def run(kind: str, seed: int, base: Exam) -> Exam:
    """Trains one model, if it is not trained already, and examines it. The figures include the meter's of the exported
    average."""
    folder = HERE / f"{kind}-{seed}"
    words = [f"data.path={keep.write(HERE / 'images')}", f"run.folder={folder}", f"run.seed={seed}"]
    if main(["train", "mini-lora", *SETTINGS, *settings_of(kind), *words, f"data.cache.path={HERE / 'cache'}"]) != 0:
        raise SystemExit(1)
    exam = keep.examine(load(max((folder / "exports").glob("step-*-ema"))), base)
    return Exam(exam.images, {**exam.figures, **drift(folder)})


def load(export: Path) -> Family:
    """mezzotint-mini with the adapter of an export."""
    family = measure.load(shipped_folder("mezzotint-mini"))
    names = LayerNames(Family.files.of(ModelSettings(path=shipped_folder("mezzotint-mini"))).trainable_shapes())
    merging.merge_into(family.parts()["denoiser"], "unet", [(files.read(adapter_file(export), names), 1.0)])
    return family


def drift(folder: Path) -> dict[str, float]:
    """The last numbers of the meter in a run's metrics, of the averaged weights."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text("utf-8").splitlines())
    last = [line for line in lines if "drift/class_shadow" in line][-1]
    return {f"drift/{name}": float(last[f"drift/{name}_shadow"]) for name in ("trigger", "class", "unrelated", "leak")}


def describe(name: str, row: Mapping[str, float]) -> str:
    """A line of figures."""
    return f"{name:<10}" + "  ".join(
        f"{key} {value:.0%}" if key.endswith(("right", "wugs")) else f"{key} {value:.3g}" for key, value in row.items()
    )


def sheet(exams: Mapping[str, Exam], shown: int = 4) -> Image.Image:
    """A row for each model: as many images of each group, with their prompts above."""
    tile, gap, left, top = 88, 4, 92, 44
    by_group = keep.questions()
    width = left + len(by_group) * (shown * (tile + gap) + 3 * gap)
    image = Image.new("RGB", (width, top + len(exams) * (tile + gap)), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    for group, prompts in enumerate(by_group.values()):
        for column in range(shown):
            x = left + group * (shown * (tile + gap) + 3 * gap) + column * (tile + gap)
            words = prompts[column][0].split()
            pen.multiline_text((x, 6), "\n".join((" ".join(words[:2]), " ".join(words[2:]))), (30, 30, 30), font)
            for row, exam in enumerate(exams.values()):
                drawn = Image.fromarray(list(exam.images.values())[group][column])
                image.paste(drawn.resize((tile, tile), Image.Resampling.BICUBIC), (x, top + row * (tile + gap)))
    for row, name in enumerate(exams):
        pen.text((4, top + row * (tile + gap) + tile // 2 - 8), name, (30, 30, 30), font)
    return image


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", help="all of these, with every kind of preservation")
    return parser.parse_args(arguments)


def demonstrate(base: Exam) -> None:
    """One seed, with a sheet of images."""
    began = time.monotonic()
    exams = {"the base": base, "control": run("none", keep.SEEDS[0], base)}
    exams["preserved"] = run(keep.KEPT, keep.SEEDS[0], base)
    sheet(exams).save(HERE / "sheet.png", optimize=True)
    print("\n" + "\n".join(describe(name, exam.figures) for name, exam in exams.items()))
    print(f"base, control, preserved   {HERE / 'sheet.png'}\n{time.monotonic() - began:.0f} seconds in all")


def compare(base: Exam, seeds: Sequence[int]) -> None:
    """All seeds and kinds, and the criteria."""
    figures: dict[str, Mapping[str, float]] = {}
    for seed in seeds:
        for kind in keep.KINDS:
            figures[f"{kind} {seed}"] = run(kind, seed, base).figures
    durable.write_json(HERE / "figures.json", figures)
    print("\n" + "\n".join(describe(name, row) for name, row in {"base": base.figures, **figures}.items()))
    print("\n".join(f"{name}: {'yes' if holds else 'NO'}" for name, holds in keep.verdicts(figures).items()))


if __name__ == "__main__":
    seeds = parse().seeds
    of_base = keep.examine(measure.load(shipped_folder("mezzotint-mini")), None)
    if seeds:
        compare(of_base, [int(text) for text in seeds.split(",")])
    else:
        demonstrate(of_base)
