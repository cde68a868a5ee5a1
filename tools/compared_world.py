"""The models, images, clips and tables that the journeys of `compare_with.py` use, the same for both trees.

Mezzotint is not imported here: of the trees only the model configurations are copied.
"""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

COLOURS = ((200, 40, 60), (30, 160, 90), (40, 80, 220), (220, 200, 40), (120, 120, 120), (240, 120, 20))
SIZES = ((57, 50), (120, 61), (52, 71))


def make_world(world: Path, assets: Path) -> None:
    """Models, images, clips and tables, the same for both trees. assets: the folder that has models/tiny-sd."""
    world.mkdir()
    for model in sorted((assets / "models").glob("tiny-*")):
        shutil.copytree(model, world / "models" / model.name)
    for part in ("text_encoder", "tokenizer"):  # beside each other, as T5 is released
        shutil.copytree(world / "models" / "tiny-latte" / part, world / "t5", dirs_exist_ok=True)
    narrow_model(world / "narrow", world / "models" / "tiny-sd")
    draw(world / "images", 8)
    draw(world / "few", 4)
    draw(world / "cat", 4, captions=False)
    make_dreams(world / "dreams")
    draw(world / "kohya" / "2_sks dog", 3)
    draw(world / "kohya" / "1_cat", 2)
    draw(world / "table", 6, captions=False)
    rows = [{"file_name": f"{n:02d}.png", "text": caption(n), "before": f"{n:02d}.png"} for n in range(6)]
    (world / "table" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    make_shards(world / "shards", world / "images")
    make_mindone(world / "mindone", assets)
    if importlib.util.find_spec("av"):
        make_clips(world / "films")
        make_lists(world)


def narrow_model(folder: Path, tiny: Path) -> None:
    """Configurations of a Stable Diffusion of a few hundred thousand parameters."""
    shutil.copytree(tiny, folder)
    narrower: dict[str, dict[str, Any]] = {
        "unet": {"block_out_channels": [16, 16, 32, 32], "cross_attention_dim": 32, "layers_per_block": 1},
        "text_encoder": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "projection_dim": 32},
        "vae": {"block_out_channels": [16, 16, 16, 16]},
    }
    for name, changes in narrower.items():
        path = folder / name / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def caption(number: int) -> str:
    return f"image number {number}, a shape, tag{number % 3}, soft light"


def draw(folder: Path, count: int, *, captions: bool = True) -> None:
    """Images of a slope from one colour to another, in three sizes that no bucket has, so that crops matter."""
    from PIL import Image

    folder.mkdir(parents=True)
    for number in range(count):
        width, height = SIZES[number % 3]
        start, end = COLOURS[number % 6], COLOURS[(number + 1) % 6]
        pixels = bytes(
            (start[c] * (width - x) + end[c] * x + 37 * y * c) // width % 256
            for y in range(height)
            for x in range(width)
            for c in range(3)
        )
        Image.frombytes("RGB", (width, height), pixels).save(folder / f"{number:02d}.png")
        if captions:
            (folder / f"{number:02d}.txt").write_text(caption(number) + "\n")


def make_dreams(folder: Path) -> None:
    """A folder as EveryDream2 reads them: captions in names and beside, settings of folders and of images."""
    draw(folder, 4)
    draw(folder / "horses", 3, captions=False)
    (folder / "00.txt").unlink()
    (folder / "00.png").rename(folder / "red, bright_1.png")
    (folder / "global.yaml").write_text("tags: [a drawing]\nflip_p: 0.25\n")
    (folder / "horses" / "multiply.txt").write_text("1.5")
    (folder / "horses" / "loss_scale.txt").write_text("0.5")
    (folder / "horses" / "batch_id.txt").write_text("horses\n")
    (folder / "horses" / "02.yaml").write_text("main_prompt: a horse\ntags: [brown, young]\nshuffle_tags: true\n")


def make_shards(folder: Path, images: Path) -> None:
    """The images in a tar archive with their captions, as WebDataset has them."""
    folder.mkdir()
    with tarfile.open(folder / "part-000000.tar", "w") as archive:
        for path in sorted(images.iterdir()):
            content = path.read_bytes()
            member = tarfile.TarInfo(path.name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def make_clips(folder: Path) -> None:
    """Three clips of twelve frames, lossless, with captions."""
    import av
    import numpy as np

    folder.mkdir()
    for number in range(3):
        with av.open(str(folder / f"{number}.mp4"), "w") as file:
            stream = file.add_stream("libx264", rate=10, options={"qp": "0", "g": "5"})
            stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv444p"
            stream.codec_context.thread_count = 1
            for frame in range(12):
                image = np.full((32, 48, 3), 18 * frame % 240, np.uint8)
                image[:16, :24] = COLOURS[number]
                file.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            file.mux(stream.encode())
        (folder / f"{number}.txt").write_text(f"A {('Red', 'Green', 'Blue')[number]} Ball <br> example.com/ball.png")


def make_mindone(folder: Path, assets: Path) -> None:
    """Images with a table, and a configuration that ships, for two steps at 64 pixels."""
    draw(folder / "images", 6, captions=False)
    rows = "".join(f'{n:02d}.png,"{caption(n)}"\n' for n in range(6))
    (folder / "images" / "img_txt.csv").write_text(f"dir,text\n{rows}")
    path = next(path for path in sorted(assets.parent.rglob("sd_xl_base_finetune_910b.yaml")))
    text = path.read_text(encoding="utf-8")
    for old, new in (("1024", "64"), ("total_step: 100000", "total_step: 2"), ("[1, 2, 10]", "[1, 2]"),
                     ("num_parallel_workers: 2", "num_parallel_workers: 0"), ("warm_up_steps: 500", "warm_up_steps: 1"),
                     ("base_learning_rate: 1.0e-6", "base_learning_rate: 1.0e-4")):  # fmt: skip
        text = text.replace(old, new)
    (folder / "finetune.yaml").write_text(text)


def make_lists(world: Path) -> None:
    """Lists of the clips and of images, as Open-Sora-Plan has them."""
    clips = [{"path": f"{n}.mp4", "cap": f"A ball, number {n}", "frame_idx": "0:8"} for n in range(3)]
    images = [{"path": f"{n:02d}.png", "cap": caption(n)} for n in range(6)]
    for name, folder, rows in (("clips", "films", clips), ("stills", "table", images)):
        (world / f"{name}.json").write_text(json.dumps(rows))
        (world / f"{name}.txt").write_text(f"{world / folder},{world / name}.json\n")
