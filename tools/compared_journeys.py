"""The journeys that `compare_with.py` takes with two trees: the world they need, the command lines, and the program
that runs them one after another with one tree.

    PYTHONPATH=TREE/src python tools/compared_journeys.py TREE WORK WORLD JOURNEYS.json

Of Mezzotint nothing is known here but its command line, the form of recipes, and names of models that ship: so it runs
with any commit. Each command line is `python -m mezzotint …` to the letter, in a forked process of its own, so that
torch is imported once and no journey knows of the one before.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import os
import pkgutil
import runpy
import shutil
import sys
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

COLOURS = ((200, 40, 60), (30, 160, 90), (40, 80, 220), (220, 200, 40), (120, 120, 120), (240, 120, 20))
SIZES = ((57, 50), (120, 61), (52, 71))


@dataclass(frozen=True, slots=True)
class Command:
    """Words after `mezzotint`; {world} stands for the folder with the data. fault: where the process dies."""

    words: tuple[str, ...]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Journey:
    """Commands in a folder of the journey's name. needs: a module without which it is left out."""

    name: str
    commands: tuple[Command, ...]
    needs: str = ""


# --- the world ------------------------------------------------------------------------------------------------------


def make_world(world: Path, assets: Path) -> None:
    """Models, pictures, clips and tables, the same for both trees. assets: the folder that has models/tiny-sd."""
    world.mkdir()
    shutil.copytree(assets / "models" / "tiny-sd", world / "tiny")
    narrow_model(world / "narrow", world / "tiny")
    draw(world / "pictures", 8)
    make_dreams(world / "dreams")
    draw(world / "kohya" / "2_sks dog", 3)
    draw(world / "kohya" / "1_cat", 2)
    draw(world / "table", 6, captions=False)
    rows = [{"file_name": f"{n:02d}.png", "text": caption(n)} for n in range(6)]
    (world / "table" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    make_shards(world / "shards", world / "pictures")
    if importlib.util.find_spec("av"):
        make_clips(world / "films")


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
    return f"picture number {number}, a shape, tag{number % 3}, soft light"


def draw(folder: Path, count: int, *, captions: bool = True) -> None:
    """Pictures of a slope from one colour to another, in three sizes that no bucket has, so that crops matter."""
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
    """A folder as EveryDream2 reads them: captions in names and beside, settings of folders and of pictures."""
    draw(folder, 4)
    draw(folder / "horses", 3, captions=False)
    (folder / "00.txt").unlink()
    (folder / "00.png").rename(folder / "red, bright_1.png")
    (folder / "global.yaml").write_text("tags: [a drawing]\nflip_p: 0.25\n")
    (folder / "horses" / "multiply.txt").write_text("1.5")
    (folder / "horses" / "loss_scale.txt").write_text("0.5")
    (folder / "horses" / "batch_id.txt").write_text("horses\n")
    (folder / "horses" / "02.yaml").write_text("main_prompt: a horse\ntags: [brown, young]\nshuffle_tags: true\n")


def make_shards(folder: Path, pictures: Path) -> None:
    """The pictures in a tar archive with their captions, as WebDataset has them."""
    folder.mkdir()
    with tarfile.open(folder / "part-000000.tar", "w") as archive:
        for path in sorted(pictures.iterdir()):
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
                picture = np.full((32, 48, 3), 18 * frame % 240, np.uint8)
                picture[:16, :24] = COLOURS[number]
                file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            file.mux(stream.encode())
        (folder / f"{number}.txt").write_text(f"A {('Red', 'Green', 'Blue')[number]} Ball <br> example.com/ball.png")


# --- the journeys ---------------------------------------------------------------------------------------------------

OURS = ("data.workers=0", "run.device=cpu", "run.threads=1", "run.tensorboard=false", "data.cache.path=cache")
NARROW = (
    "model.path={world}/narrow", "model.family=sd", "model.weights=random", "data.path={world}/pictures",
    "data.resolution=48", "data.buckets.step=8", "data.batch_size=4", "data.crop=random", "data.flip=0.5",
    "data.captions.dropout=0.1", "optim.lr=1e-3", "run.seed=7", "run.save.every=3 steps", "run.log_samples=true",
)  # fmt: skip
CACHED = ("data.cache.latents=true", "data.cache.text=true")
LATTE = (
    "model.family=latte", "model.path=tiny-latte", "model.weights=random", "data.path={world}/films",
    "data.format=videofolder", "data.resolution=32", "data.buckets.step=16", "data.buckets.shape=square",
    "data.clips.frames=5", "data.clips.stills=2", "data.clips.stills_from=clips", "data.captions.clean=true",
    "data.batch_size=2", "data.crop=center", "data.flip=0", "optim.lr=1e-3", "optim.ema.rule=saturating",
    "run.seed=3", "run.save.every=2 steps", "run.recompute.enabled=true",
)  # fmt: skip
SDXL = (
    "model.family=sdxl", "model.path=tiny-sdxl", "model.weights=random", "data.path={world}/pictures",
    "data.resolution=64", "data.buckets.step=16", "data.batch_size=2", "data.crop=random", "data.flip=0.5",
    "optim.lr=1e-3", "optim.ema.rule=ramp", "run.seed=5",
)  # fmt: skip
DREAMS = (
    *NARROW, "data.path={world}/dreams", "data.format=everydream", "data.batch_size=2", "data.remainder=repeat",
    "data.epoch_seed=add", "data.buckets.shape=square", "data.crop=triangular", "data.flip=0", "optim.accumulation=2",
    "optim.ema.rule=constant",
)  # fmt: skip
TEXT_TRAINED = (
    *NARROW, "model.train=[denoiser, text_encoder]", "optim.part_lr={text_encoder: 5e-4}",
    "optim.schedule={kind: cosine, warmup_steps: 2}", "optim.ema={rule: ramp, decay: 0.99}", "optim.clip.scope=part",
    "model.prediction=v", "objective={min_snr_gamma: 5, pyramid_discount: 0.5, zero_terminal_snr: true}",
    "data.holdout.share=0.25", "run.validation.every=2 steps", "run.preview.every=3 steps", "sample.steps=2",
    "sample.prompts=[a red circle]", "data.captions.shuffle_tags=true", "data.captions.keep_tags=1",
)  # fmt: skip
OPTIMIZERS = {
    "adam-weight-decay": "{kind: adam-weight-decay}",
    "adafactor": "{kind: adafactor}",
    "lion": "{kind: lion}",
    "adacoor": "{kind: adacoor}",
    "prodigy": "{kind: prodigy}",
    "library": "{kind: library, class_name: torch.optim.NAdam}",
}
RESUMED = {
    "sd": (*NARROW, "optim.ema.rule=ramp", "optim.accumulation=2", "run.steps=6"),
    "text": (*TEXT_TRAINED, "run.steps=6"),
    "everydream": (*DREAMS, "run.steps=6"),
    "latte": (*LATTE, *CACHED, "run.steps=4"),
}
"""Runs that one tree begins and the other ends. Each saves a checkpoint before the step in which it dies."""
DRAWN = ("--steps=2", "--seed=1,2", "run.device=cpu", "run.threads=1")

LINES = """
diffusers-sd --pretrained_model_name_or_path=sd15 --train_data_dir=photos
diffusers-sd --pretrained_model_name_or_path=sd15 --train_data_dir=photos --use_ema --seed=3 --snr_gamma=5 --resolution=512 --center_crop --random_flip
diffusers-sd --pretrained_model_name_or_path=sd15 --train_data_dir=photos --mixed_precision=fp16 --gradient_accumulation_steps=4 --max_train_steps=15000 --lr_scheduler=cosine --lr_warmup_steps=500 --checkpointing_steps=500 --output_dir=out --noise_offset=0.05 --allow_tf32
diffusers-sd python train_text_to_image.py --pretrained_model_name_or_path=sd15 --train_data_dir=photos --use_8bit_adam --gradient_checkpointing --validation_prompts fox cat
diffusers-sdxl --pretrained_model_name_or_path=sdxl --train_data_dir=photos --mixed_precision=bf16
diffusers-sdxl --pretrained_model_name_or_path=sdxl --pretrained_vae_model_name_or_path=madebyollin/sdxl-vae-fp16-fix --train_data_dir=photos --proportion_empty_prompts=0.2 --use_ema --timestep_bias_strategy=later
everydream2 --resume_ckpt sd15 --data_root pictures --max_epochs 30 --lr 2e-6
everydream2 --resume_ckpt sd15 --data_root pictures --batch_size 6 --ema_strength_target 0.1 --zero_frequency_noise_ratio -1
everydream2 python train.py --resume_ckpt sd15 --project_name fox --lr_scheduler cosine --shuffle_tags --keep_tags 2 --min_snr_gamma 5 --write_schedule --rated_dataset
mindone-sdxl python train.py --config sd_xl_base_finetune_910b.yaml --weight base.ckpt --data_path photos/
mindone-sdxl python train.py --config sd_xl_base_finetune_910b_fa.yaml --data_path photos/ --ms_amp_level O2 --cache_latent True --cache_text_embedding True
mindone-sdxl mpirun --allow-run-as-root -n 8 python train.py --config sd_xl_base_finetune_multi_graph_910b.yaml --data_path photos/ --is_parallel True
open-sora-plan --video_data video_data.txt --pretrained LatteT2V/65x512x512 --num_frames 65 --batch_size 2 --use_recompute True
open-sora-plan --video_data video.txt --image_data image.txt --use_image_num 4 --pretrained LatteT2V/17x256x256 --num_frames 17 --max_image_size 256 --precision bf16 --use_ema True --start_learning_rate 2e-5
"""  # noqa: E501
"""Lines of other trainers, the name of the dialect first."""


def train(*words: str, folder: str = "run", fault: str = "") -> Command:
    return Command(("train", "empty.yaml", *OURS, *words, f"run.folder={folder}"), fault)


def command(*words: str) -> Command:
    return Command(words)


def translations(lines: Iterable[str]) -> tuple[Command, ...]:
    split = [line.split() for line in lines if line.strip()]
    return tuple(command("translate", "--as", words[0], "--", *words[1:]) for words in split)


def checks(recipes: Iterable[str]) -> tuple[Command, ...]:
    """`check` of shipped recipes over what is here. Those of clips stay away: they want clips of their sizes."""
    return tuple(
        command("check", name, "--json", f"model.path={'tiny-sdxl' if 'sdxl' in name else 'tiny-sd'}",
                "model.weights=random", "model.vae=null", "data.path={world}/pictures", "data.batch_size=2",
                f"data.resolution={256 if 'everydream' in name else 64}", "optim.optimizer={kind: adamw}", *OURS,
                "run.folder=run")
        for name in recipes
        if "latte" not in name and "clips" not in name
    )  # fmt: skip


def journeys(recipes: Sequence[str]) -> list[Journey]:
    """What both trees do. recipes: names of those that ship with both."""
    export, ema = "run/exports/step-00000020", "run/exports/step-00000020-ema"
    return [
        Journey(
            "tiny_cpu",
            (
                command("train", "tiny_cpu", *OURS, "run.folder=run", "run.schedule_file=true", "run.log_samples=true"),
                command("sample", "run", "--prompt=a red circle", "--size=64", "--out=drawn", *DRAWN),
                command("sample", "run", "--prompt=a star", "--weights=shadow", "--size=64x48", "--out=ema",
                        "--solver=euler", *DRAWN),
                command("sample", export, "--prompt=a star", "--size=64", "--out=begun", "sample.strength=0.6",
                        "sample.image={world}/pictures/00.png", "--solver=dpm++", "--guidance=1,5", *DRAWN),
                command("convert", export, "single.safetensors"),
                command("convert", "single.safetensors", "folder", "--dtype=fp16", "--config={world}/tiny"),
                command("merge", export, ema, "half.safetensors", "--weights=0.5,0.5"),
            ),
        ),
        Journey(
            "cached",
            (
                Command(("cache", "empty.yaml", *OURS, *NARROW, *CACHED, "data.cache.crops=2")),
                train(*NARROW, *CACHED, "data.cache.crops=2", "run.steps=3", "run.schedule_file=true"),
            ),
        ),
        Journey("text encoder trained, v, previews", (train(*TEXT_TRAINED, "run.steps=4"),)),
        Journey("half precision", (train(*NARROW, "data.buckets.shape=square", "run.precision=bf16",
                                         "run.weight_dtype=alone", "run.steps=2"),)),
        Journey(
            "optimizers",
            tuple(train(*NARROW, *CACHED, f"optim.optimizer={settings}", "run.steps=3", "run.export.every=null",
                        folder=name) for name, settings in OPTIMIZERS.items()),
        ),
        Journey(
            "sdxl",
            (
                train(*SDXL, "run.steps=2", folder="run"),
                train(*SDXL, *CACHED, "data.cache.crops=2", "run.steps=2", "run.export.single_file=true", folder="two"),
                command("sample", "run", "--prompt=a star", "--size=64", "--out=drawn", *DRAWN),
            ),
        ),
        Journey(
            "latte",
            (
                train(*LATTE, "run.steps=2", folder="run"),
                train(*LATTE, *CACHED, "run.steps=4", "run.schedule_file=true", folder="two"),
                command("sample", "two", "--prompt=a RED ball", "--size=32x32", "--out=drawn", *DRAWN),
            ),
            needs="av",
        ),
        Journey("everydream folder", (train(*DREAMS, "run.steps=4", "run.schedule_file=true"),)),
        Journey(
            "formats",
            tuple(train(*NARROW, f"data.format={kind}", f"data.path={{world}}/{place}", "run.steps=2",
                        "run.schedule_file=true", folder=kind)
                  for kind, place in {"kohya": "kohya", "metadata": "table", "webdataset": "shards"}.items()),
        ),
        Journey("translated lines", translations(LINES.splitlines())),
        Journey("check of recipes", checks(recipes)),
        Journey("lists", tuple(command("ls", kind) for kind in ("recipes", "models", "families", "formats"))),
    ]  # fmt: skip


def _needs(name: str) -> str:
    return "av" if name == "latte" else ""


def begun() -> list[Journey]:
    """What the other tree begins: runs that die half-way."""
    faults = {name: f"step.begin@{3 if name == 'latte' else 5}:kill" for name in RESUMED}
    return [Journey(f"begun {n}", (train(*words, fault=faults[n]),), _needs(n)) for n, words in RESUMED.items()]


def whole() -> list[Journey]:
    """The same runs in one go."""
    return [Journey(f"whole {n}", (train(*words),), _needs(n)) for n, words in RESUMED.items()]


def ended() -> list[Journey]:
    """What this tree does with folders that the other has made: it ends the runs, draws from a run, finds the cache
    complete."""
    return [
        *(Journey(f"begun {n}", (train(*words),), _needs(n)) for n, words in RESUMED.items()),
        Journey(
            "tiny_cpu",
            (command("sample", "run", "--prompt=a red circle", "--size=64", "--out=drawn-again", *DRAWN),
             command("sample", "run", "--prompt=a star", "--weights=shadow", "--size=64x48", "--out=ema-again",
                     "--solver=euler", *DRAWN)),
        ),
        Journey("cached", (Command(("cache", "empty.yaml", *OURS, *NARROW, *CACHED, "data.cache.crops=2")),)),
    ]  # fmt: skip


def written(items: Sequence[Journey]) -> str:
    return json.dumps([asdict(item) for item in items], indent=1)


def read(text: str) -> list[Journey]:
    return [
        Journey(j["name"], tuple(Command(tuple(c["words"]), c["fault"]) for c in j["commands"]), j["needs"])
        for j in json.loads(text)
    ]


# --- running --------------------------------------------------------------------------------------------------------


@dataclass
class Driver:
    """Runs journeys with the tree that PYTHONPATH names."""

    work: Path
    world: Path
    statuses: dict[str, list[int]] = field(default_factory=dict)

    def run(self, journey: Journey) -> None:
        """Answers lie beside: 00.out, 00.err, 00.status of each command, counted on from those that are there."""
        folder = self.work / journey.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "empty.yaml").write_text("schema: 1\n")
        first = len(list(folder.glob("*.status")))
        for number, step in enumerate(journey.commands, first):
            words = [word.replace("{world}", str(self.world)) for word in step.words]
            (folder / f"{number:02d}.words").write_text(" ".join(words))
            status = self.fork(words, folder, f"{number:02d}", step.fault)
            (folder / f"{number:02d}.status").write_text(f"{status}\n")

    def fork(self, words: Sequence[str], folder: Path, name: str, fault: str) -> int:
        """`python -m mezzotint` with these words in a child; its exit status, or 128 and the signal."""
        child = os.fork()
        if child:
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            return code if code >= 0 else 128 - code
        status = 70
        try:
            for handle, ending in ((1, "out"), (2, "err")):
                os.dup2(os.open(folder / f"{name}.{ending}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), handle)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            os.chdir(folder)
            if fault:
                os.environ["MEZZOTINT_FAULT"] = fault
            sys.argv = ["mezzotint", *words]
            try:
                runpy.run_module("mezzotint", run_name="__main__", alter_sys=True)
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def warm_up(tree: Path) -> None:
    """Imports what takes seconds, and every module of the tree, whatever they are called. Raises RuntimeError if it is
    another tree's."""
    package = importlib.import_module("mezzotint")
    if not Path(str(package.__file__)).is_relative_to(tree):
        raise RuntimeError(f"mezzotint is imported from {package.__file__}, not from {tree}")
    for name in ("torch", "diffusers", "transformers", "matplotlib.pyplot"):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, "mezzotint.", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # an extra that is not installed
                importlib.import_module(module.name)


def main(words: Sequence[str]) -> int:
    tree, work, world, plan = (Path(word) for word in words)
    warm_up(tree)
    import torch

    torch.set_num_threads(1)
    driver = Driver(work, world)
    for journey in read(plan.read_text()):
        if not journey.needs or importlib.util.find_spec(journey.needs):
            driver.run(journey)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
