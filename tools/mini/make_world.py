"""Writes the world as a data set: numbered PNGs, each with a .txt of three captions, one a line.

    python tools/mini/make_world.py FOLDER --count 24000 --seed 1

The same command gives the same files, byte for byte. A recipe reads them with `data.captions.lines: random`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from mini import world


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=24_000, help="number of images")
    parser.add_argument("--seed", type=int, default=1, help="of the world")
    parser.add_argument("--wug", action="store_true", help="the twelve images of the new word instead")
    parser.add_argument("--full", action="store_true", help="captions that name everything, in every such wording")
    parser.add_argument("--spread", choices=get_args(world.WugSpread), default="even", help="where wugs are shown")
    options = parser.parse_args(arguments)
    scenes = (
        world.wug_scenes(options.spread)
        if options.wug
        else (world.scene(index, options.seed) for index in range(options.count))
    )
    options.folder.mkdir(parents=True, exist_ok=True)
    for index, scene in enumerate(scenes):
        stem = options.folder / f"{index:05d}"
        world.draw(scene).save(stem.with_suffix(".png"))
        lines = world.full_captions(scene) if options.full else world.captions(scene)
        stem.with_suffix(".txt").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
