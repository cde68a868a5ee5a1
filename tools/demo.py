"""`make demo`: mezzotint-mini learns a word, and draws it in colours and at places that it was never shown.

Twelve images of a made-up thing, and some of the world that the model knows, so that it keeps what it knows; the
recipe `mini`, UNet and text encoder trained; an examination before and after, read off the pixels. Everything lies in
`demo/wug/` and can be deleted. Running it again goes on where it stopped; `rm -r demo/wug` starts anew.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from PIL import Image

from mezzotint import durable
from mezzotint.cli import main
from mezzotint.weights.folder.model_folder import shipped_folder

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mini import lesson, measure
from mini.lesson import Answers

HERE = Path("demo/wug")
SHOWN = (0, 5, 10, 3, 4, 9, 2, 7, 8)
"""Prompts for wugs on the sheet: every colour and place among them."""
SHOWN_OLD = (5, 37, 74)
"""Prompts for the old world on the sheet."""

BEFORE = f"""\
mezzotint-mini, which ships with Mezzotint, draws shapes in colours and at places. It has never heard of a wug.
It is now shown twelve images of wugs: red, blue, yellow and white, at six of the nine places of its world.
Beside them it is shown {lesson.KEPT} images of what it knows, drawn here, so that it forgets nothing: regularisation
images, as one would take with images of one's own. Then it is asked for wugs in the four other colours and at the
three other places. The recipe is `mini` with a few settings of its own; docs/start/demonstration.md says why these.
"""
AFTER = """\
before and after   {sheet}
previews           {grid}
curve              {curve}
report             {report}
the model          {model}     (a folder that diffusers opens)
Try:  mezzotint sample {model} --prompt="a pink wug in the bottom left"
      mezzotint train mini data.path=YOUR_FOLDER      on your own images, each with its caption in a .txt file
      press Ctrl-C in a run and start it again: it resumes, bit-exact.
"""


def run() -> int:
    """The whole demonstration; returns the exit status."""
    began = time.monotonic()
    print(BEFORE)
    folders = lesson.write(HERE / "images")
    before = lesson.examine(measure.load(shipped_folder("mezzotint-mini")))
    print(shares_in_words("before", before), flush=True)
    status = main(["train", "mini", *words(folders, HERE / "cache", HERE / "run")])
    if status != 0:
        return status
    model = newest(HERE / "run" / "exports")
    after = lesson.examine(measure.load(model))
    print(f"\n{shares_in_words('before', before)}\n{shares_in_words('after', after)}\n")
    durable.write_json(HERE / "figures.json", {"before": figures(before), "after": figures(after)})
    draw_sheet(HERE / "before-after.png", folders[0], before, after)
    logs = HERE / "run" / "logs"
    places = {"grid": HERE / "run" / "samples" / "grid.png", "curve": logs / "loss.png", "report": logs / "report.txt"}
    print(AFTER.format(sheet=HERE / "before-after.png", model=model, **places))
    print(f"{time.monotonic() - began:.0f} seconds in all")
    return 0


def words(folders: tuple[Path, Path], cache: Path, place: Path) -> list[str]:
    """What the demonstration asks of the recipe `mini` besides what stands in it.

    folders: of `lesson.write`. cache, place: where latents and the run shall lie.
    """
    prompts = ["a green wug in the middle", "a purple wug in the top left", "a red wug on the left", "a blue star"]
    return [
        lesson.as_sets(folders, lesson.REPEATS),
        *lesson.SETTINGS,
        f"data.cache.path={cache}",
        f"run.folder={place}",
        "sample.prompts=[" + ", ".join(f'"{prompt}"' for prompt in prompts) + "]",
    ]


def newest(exports: Path) -> Path:
    """The averaged weights of the last export."""
    return max(exports.glob("step-*-ema"))


def figures(answers: Answers) -> dict[str, Mapping[str, float]]:
    """The shares of an examination, for a file."""
    return {"new": answers.new, "old": answers.old}


def shares_in_words(when: str, answers: Answers) -> str:
    """Two lines: how much of what was asked is as asked."""
    lines = []
    for what, row in (("the new word", answers.new), ("the old world", answers.old)):
        shares = "   ".join(f"{name} {row[name]:4.0%}" for name in ("shape", "colour", "position", "all"))
        lines.append(f"{when:<7} {what:<14} {shares}")
    return "\n".join(lines)


def draw_sheet(path: Path, wugs: Path, before: Answers, after: Answers) -> None:
    """Writes the sheet: what was shown, and pairs of before and after."""
    asked_new, asked_old = lesson.questions(len(before.new_images), len(before.old_images))
    rows = [(asked_new[n][0], before.new_images[n], after.new_images[n]) for n in SHOWN]
    rows += [(asked_old[n][0], before.old_images[n], after.old_images[n]) for n in SHOWN_OLD]
    lesson.sheet([Image.open(path) for path in sorted(wugs.glob("*.png"))], rows).save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(run())
