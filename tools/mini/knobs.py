"""What single settings do, tried on mezzotint-mini: short runs that differ in one setting, images and figures.

    python tools/mini/knobs.py offset-noise          # trains what is missing, draws, measures
    python tools/mini/knobs.py all
    python tools/mini/knobs.py page                  # writes stored figures into docs/guides/what-the-knobs-do.md

Each knob ends as docs/images/knobs/NAME.png and NAME.json, and as a table of docs/guides/what-the-knobs-do.md. Runs
lie in demo/knobs/ and are shared by the knobs; what is there is not trained again. A run takes a minute on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from mezzotint import durable
from mezzotint.cli import main as mezzotint
from mezzotint.families.sd import Family
from mezzotint.sampling import grids
from mezzotint.weights.folder.model_folder import shipped_folder

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from mini import check_vae, lesson, measure, night, world
from mini.measure import Pixels

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images" / "knobs"
PAGE = ROOT / "docs" / "guides" / "what-the-knobs-do.md"
STEPS = 300
KEPT, REPEATS = 600, (50, 1)
SPREAD: world.WugSpread = "bottomless"
"""Images of the old world, how often an epoch visits each wug and each of those, and where wugs are shown: as the
stored figures were made. The demonstration takes more images, other places, and captions that name more."""
ASKED = 80
"""Questions of each kind that a model is asked."""
SHOWN = (0, 5, 10, 3, 4, 9)
"""Those of them that are on the sheet."""
NEAR = 10.0
"""An image is as dark or bright as asked when its mean is so near to what the VAE makes of the true one, of 255."""

Subject = Literal["wug", "night"]
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Run:
    """A training from mezzotint-mini. subject: what is taught. words: what differs from the recipe `mini`."""

    subject: Subject
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table and of a sheet. run: a name of RUNS; None is the model that ships. weights, guidance: what
    draws, and how."""

    what: str
    run: str | None
    weights: Literal["average", "raw"] = "average"
    guidance: float = 3.0


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting that is tried."""

    title: str
    rows: tuple[Row, ...]


RUNS: dict[str, Run] = {
    "plain": Run("wug"),
    "constant": Run("wug", ("optim.schedule.kind=constant",)),
    "min-snr": Run("wug", ("objective.min_snr_gamma=5",)),
    "no-dropout": Run("wug", ("data.captions.dropout=0",)),
    "much-dropout": Run("wug", ("data.captions.dropout=0.5",)),
    "accumulated": Run("wug", ("data.batch_size=8", "optim.accumulation=4")),
    "small-batch": Run("wug", ("data.batch_size=8",)),
    "night": Run("night"),
    "night-offset": Run("night", ("objective.noise_offset=0.1",)),
    "night-zero": Run("night", ("objective.zero_terminal_snr=true",)),
}

KNOBS: dict[str, Knob] = {
    "average": Knob(
        "optim.ema: trained weights and their average",
        (
            Row("constant rate, trained weights", "constant", "raw"),
            Row("constant rate, average", "constant"),
            Row("cosine, trained weights", "plain", "raw"),
            Row("cosine, average", "plain"),
        ),
    ),
    "schedule": Knob(
        "optim.schedule.kind: cosine and constant, trained weights",
        (Row("constant", "constant", "raw"), Row("cosine", "plain", "raw")),
    ),
    "min-snr": Knob(
        "objective.min_snr_gamma: without, and 5",
        (Row("without (null)", "plain"), Row("γ = 5", "min-snr")),
    ),
    "guidance": Knob(
        "data.captions.dropout and sample.guidance",
        tuple(
            Row(f"dropout {dropout}, guidance {scale:g}", run, guidance=scale)
            for dropout, run in (("0", "no-dropout"), ("0.1", "plain"), ("0.5", "much-dropout"))
            for scale in (1.0, 3.0, 7.5)
        ),
    ),
    "zero-terminal-snr": Knob(
        "objective.zero_terminal_snr: very dark and very bright images, v-prediction",
        (Row("before", None), Row("off", "night"), Row("on", "night-zero")),
    ),
    "offset-noise": Knob(
        "objective.noise_offset: very dark and very bright images",
        (Row("before", None), Row("0", "night"), Row("0.1", "night-offset")),
    ),
    "accumulation": Knob(
        "optim.accumulation and data.batch_size",
        (
            Row("batch 32", "plain"),
            Row("batch 8, accumulation 4", "accumulated"),
            Row("batch 8", "small-batch"),
        ),
    ),
}


# --- training ---------------------------------------------------------------------------------------------------------


def model_of(row: Row, folder: Path, base: Path, steps: int) -> Path:
    """The model that a row draws with; trained first when it is not there."""
    if row.run is None:
        return base
    run = RUNS[row.run]
    place = folder / row.run
    export = place / "exports" / f"step-{steps:08d}{'-ema' if row.weights == 'average' else ''}"
    if not (export / "model_index.json").is_file():
        train(run, place, folder, base, steps)
    return export


def train(run: Run, place: Path, folder: Path, base: Path, steps: int) -> None:
    """One short run. Raises SystemExit when it ends with another status than 0."""
    words = [f"model.path={base}", f"data.cache.path={folder / 'cache'}", f"run.folder={place}", f"run.steps={steps}"]
    words += [
        "data.captions.lines=random",
        "run.threads=1",
        "run.preview.every=null",
        "run.save.every=null",
        "run.tensorboard=false",
    ]
    if run.subject == "wug":
        wugs, others = lesson.write(folder / "images", KEPT, full=False, spread=SPREAD)
        words += [lesson.as_sets((wugs, others), REPEATS)]
    else:
        words += [f"data.path={night.write(folder / 'night-images')}", "data.repeats=4"]
    status = mezzotint(["train", "mini", *words, *run.words])
    if status != 0:
        raise SystemExit(status)


# --- measuring --------------------------------------------------------------------------------------------------------


def answers(row: Row, model: Path, subject: Subject) -> tuple[list[Pixels], Figures]:
    """The images of a row's sheet, and its figures by column."""
    family = measure.load(model)
    return _wug_answers(family, row) if subject == "wug" else _night_answers(family, row)


def _wug_answers(family: Family, row: Row) -> tuple[list[Pixels], Figures]:
    exam = lesson.examine(family, new=ASKED, old=ASKED, guidance=row.guidance, spread=SPREAD)
    figures = {f"new word: {name}": share for name, share in exam.new.items()}
    figures["old world: all"] = exam.old["all"]
    return [exam.new_images[number] for number in SHOWN], figures


def _night_answers(family: Family, row: Row) -> tuple[list[Pixels], Figures]:
    settings = argparse.Namespace(seed=lesson.EXAM_SEED, steps=20, guidance=row.guidance, solver="ddim", batch=40)
    prompts = night.prompts(40)
    drawn = list(measure.images(family, [(text, scene) for text, scene, _ in prompts], settings))
    figures: Figures = {}
    for light in night.LIGHTS:
        own = [(pixels, scene) for pixels, (_, scene, lit) in zip(drawn, prompts, strict=True) if lit == light]
        true = np.stack([np.asarray(night.draw(scene, light)) for _, scene in own])
        levels = np.array([pixels.mean() for pixels, _ in own])
        best = check_vae.reconstruct(family.parts()["vae"], true)[0].mean(axis=(1, 2, 3))
        figures[f"{light}: as asked"] = float(np.mean(np.abs(levels - best) < NEAR))
        figures[f"{light}: level"] = float(levels.mean())
        figures[f"{light}: best level"] = float(best.mean())
        figures[f"{light}: true level"] = float(true.mean())
    return drawn[: len(SHOWN)], figures


def subject_of(knob: Knob) -> Subject:
    """What all rows of a knob are about."""
    (subject,) = {RUNS[row.run].subject for row in knob.rows if row.run is not None}
    return subject


def try_out(name: str, folder: Path, base: Path, steps: int) -> None:
    """Trains, draws and measures all rows of a knob; writes its sheet and its figures."""
    knob = KNOBS[name]
    subject = subject_of(knob)
    cells, rows = [], []
    for row in knob.rows:
        drawn, figures = answers(row, model_of(row, folder, base, steps), subject)
        cells.append(drawn)
        rows.append({"what": row.what, "figures": figures})
        print(row.what, "  ".join(f"{column} {value:.3f}" for column, value in figures.items()), flush=True)
    columns = [lesson.questions(ASKED, 1, SPREAD)[0][number][0] for number in SHOWN]
    if subject == "night":
        columns = [text for text, _, _ in night.prompts(len(SHOWN))]
    IMAGES.mkdir(parents=True, exist_ok=True)
    sheet = grids.sheet(cells, rows=[row.what for row in knob.rows], columns=columns, title=knob.title)
    sheet.save(IMAGES / f"{name}.png", optimize=True)
    durable.write_json(IMAGES / f"{name}.json", {"knob": knob.title, "steps": steps, "rows": rows})


# --- the page ---------------------------------------------------------------------------------------------------------


def table(results: Mapping[str, Any]) -> str:
    """The figures of a knob as a table: shares in percent, levels as they are."""
    rows: Sequence[Mapping[str, Any]] = results["rows"]
    columns = list(rows[0]["figures"])
    lines = ["| | " + " | ".join(columns) + " |", "| --- " * (1 + len(columns)) + "|"]
    for row in rows:
        cells = [_cell(column, row["figures"][column]) for column in columns]
        lines.append(f"| {row['what']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(column: str, value: float) -> str:
    return f"{value:.1f}" if column.endswith("level") else f"{100 * value:.0f} %"


def laid_in(text: str) -> str:
    """The page with the stored figures between its marks."""
    for name in KNOBS:
        stored = IMAGES / f"{name}.json"
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if stored.is_file():
            head, rest = text.split(begin)
            _, tail = rest.split(end)
            text = head + begin + table(json.loads(stored.read_text("utf-8"))) + end + tail
    return text


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=(*KNOBS, "all", "page"))
    parser.add_argument("--folder", type=Path, default=Path("demo/knobs"), help="where the runs lie")
    parser.add_argument("--base", type=Path, default=shipped_folder("mezzotint-mini"), help="the model they begin with")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = () if options.name == "page" else tuple(KNOBS) if options.name == "all" else (options.name,)
    for name in names:
        try_out(name, options.folder, options.base, options.steps)
    durable.write_file(PAGE, laid_in(PAGE.read_text("utf-8")))


if __name__ == "__main__":
    main()
