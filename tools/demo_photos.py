"""`make demo-photos`: real photographs → cache → training of a small model from nothing → curve, previews, export.

The photographs travel in the scikit-image wheel; captions are written here. Everything lies in `demo/photos/` and can
be deleted. Running it again goes on where it stopped; `rm -r demo/photos` starts anew.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import skimage

from mezzotint.cli import main

PHOTOGRAPHS = {
    "astronaut.png": "a portrait of an astronaut in an orange suit before a flag",
    "brick.png": "a grey brick wall",
    "camera.png": "a black and white photo of a man with a camera on a tripod",
    "chelsea.png": "a close photo of a ginger cat",
    "clock_motion.png": "a black and white photo of a clock",
    "coffee.png": "a cup of coffee on a wooden table",
    "coins.png": "rows of old coins on a dark ground",
    "grass.png": "grey grass from above",
    "gravel.png": "grey gravel",
    "hubble_deep_field.jpg": "many galaxies in a black sky",
    "ihc.png": "a microscope image of tissue, blue and brown",
    "moon.png": "the grey surface of the moon",
    "motorcycle_left.png": "a motorcycle in a workshop, seen from the left",
    "motorcycle_right.png": "a motorcycle in a workshop, seen from the right",
    "retina.jpg": "a retina, an orange disc on a black ground",
    "rocket.jpg": "a rocket on its launch pad under a blue sky",
}
HERE = Path("demo/photos")
BEFORE = """\
A small model of Stable Diffusion's structure starts from random weights and sees sixteen photographs over and over.
What you can expect: the loss falls, and previews move from noise towards the colours and the layout of the photograph
that the prompt names. What you cannot: sharp images, or anything new. The model is three hundred times smaller than
Stable Diffusion, knows nothing but these images, and its image coder keeps blurred colours only.
"""
PROMPTS = ("astronaut.png", "coffee.png", "rocket.jpg", "chelsea.png")
AFTER = """\
Look at {grid}: a row for each prompt and kind of weights, a column for each time they were drawn.
Try:  press Ctrl-C in a run and start `make demo-photos` again: it goes on, to the same bits.
      mezzotint train photos data.path=YOUR_FOLDER run.name=mine     the same on your own images with captions
      mezzotint explain optim.lr      mezzotint check photos data.path=YOUR_FOLDER
"""


def write_photographs(folder: Path) -> None:
    """Copies the photographs and writes a caption beside each."""
    source = Path(skimage.__file__).parent / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for name, caption in PHOTOGRAPHS.items():
        if not (folder / name).exists():
            shutil.copyfile(source / name, folder / name)
        (folder / name).with_suffix(".txt").write_text(caption + "\n")


def run() -> int:
    """The whole demonstration; returns the exit status."""
    began = time.monotonic()
    print(BEFORE)
    write_photographs(HERE / "images")
    prompts = ", ".join(f'"{PHOTOGRAPHS[name]}"' for name in PROMPTS)
    places = [f"data.path={HERE / 'images'}", f"data.cache.path={HERE / 'cache'}", f"run.folder={HERE / 'run'}"]
    status = main(["train", "photos", *places, f"sample.prompts=[{prompts}]"])
    if status == 0:
        print()
        print(AFTER.format(grid=HERE / "run" / "samples" / "grid.png"))
        print(f"{time.monotonic() - began:.0f} seconds in all")
    return status


if __name__ == "__main__":
    sys.exit(run())
