"""The journeys that `compare_with.py` takes with two trees.

Of Mezzotint nothing is known here but its command line, the form of recipes, and models that ship: so they can be taken
with any commit. They are written in the oldest words (`compare_with.toml`). Each command line is
`python -m mezzotint …`; `compared_runs.py` runs them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import yaml

from compared_lines import EVERYDREAM_FILES, LINES, MINDONE, TRAINED, TRAINED_OURS
from compared_words import Words


@dataclass(frozen=True, slots=True)
class Command:
    """Words after `mezzotint`; {world} stands for the folder with the data. line: the same in the words of a tree.
    fault: where the process kills itself."""

    words: tuple[str, ...]
    fault: str = ""
    processes: int = 1
    line: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Journey:
    """Commands in a folder of the journey's name. needs: a module without which it is left out. files: name and text of
    what lies there before; recipes of ours among them end with .yaml."""

    name: str
    commands: tuple[Command, ...]
    needs: str = ""
    files: tuple[tuple[str, str], ...] = ()


OURS = ("data.workers=0", "run.device=cpu", "run.threads=1", "run.tensorboard=false", "data.cache.path=cache")
NARROW = (
    "model.path={world}/narrow", "model.family=sd", "model.weights=random", "data.path={world}/images",
    "data.resolution=48", "data.buckets.step=8", "data.batch_size=4", "data.crop=random", "data.flip=0.5",
    "data.captions.dropout=0.1", "optim.lr=1e-3", "run.seed=7", "run.save.every=3 steps", "run.log_samples=true",
)  # fmt: skip
CACHED = ("data.cache.latents=true", "data.cache.text=true")
CLIPS = ("data.path={world}/films", "data.format=videofolder", "data.buckets.shape=square", "data.flip=0",
         "data.crop=center", "data.resolution=32", "data.batch_size=2", "optim.lr=1e-3")  # fmt: skip
LATTE = (
    *CLIPS, "model.family=latte", "model.path={world}/models/tiny-latte", "model.weights=random",
    "data.buckets.step=16", "data.clips.frames=5", "data.clips.stills=2", "data.clips.stills_from=clips",
    "data.captions.clean=true", "optim.ema.rule=saturating", "run.seed=3", "run.save.every=2 steps",
    "run.recompute.enabled=true",
)  # fmt: skip
SDXL = (
    "model.family=sdxl", "model.path={world}/models/tiny-sdxl", "model.weights=random", "data.path={world}/few",
    "data.resolution=64", "data.buckets.step=16", "data.batch_size=2", "data.crop=random", "data.flip=0.5",
    "optim.lr=1e-3", "optim.ema.rule=ramp", "run.seed=5",
)  # fmt: skip
FLOW = (
    "model.weights=random", "data.path={world}/few", "data.resolution=48", "data.buckets.step=16", "data.batch_size=2",
    "data.crop=random", "data.flip=0.5", "data.captions.dropout=0.1", "optim.lr=1e-3", "run.seed=5",
)  # fmt: skip
FAMILIES: dict[str, tuple[str, ...]] = {
    "sd3": ("model.sd3.t5_tokens=16", "optim.ema.rule=ramp"),
    "flux": ("model.flux.t5_tokens=16",),
    "flux2": ("model.flux2.text_tokens=48",),
    "qwen-image": ("model.qwen_image.text_tokens=48",),
    "z-image": ("model.z_image.distilled=true", "model.z_image.text_tokens=48"),
    "wan": (*CLIPS, "model.wan.text_tokens=16", "data.clips.frames=5", "data.buckets.step=32"),
    "ltx": (*CLIPS, "model.ltx.text_tokens=16", "data.clips.frames=9", "data.buckets.step=32"),
}
"""Families of flow-matching models, and what each sets besides FLOW."""
LORA = ("model.adapter.kind=lora", "model.adapter.rank=2", "optim.ema.rule=none")
ADAPTERS: dict[str, tuple[str, ...]] = {
    "lora": ("model.adapter.kind=lora", "model.adapter.dropout=0.1", "run.export.adapter=both"),
    "rslora": ("model.adapter.kind=rslora", "model.adapter.alpha=1", "run.export.adapter=diffusers"),
    "dora": ("model.adapter.kind=dora", "model.train=[denoiser, text_encoder]", "run.export.adapter=both"),
    "pissa": ("model.adapter.kind=lora", "model.adapter.init=pissa", "run.export.adapter=both"),
    "loha": ("model.adapter.kind=loha", "model.adapter.targets=[attention]", "run.export.adapter=kohya"),
    "lokr": ("model.adapter.kind=lokr", "model.adapter.decompose_both=true", "model.adapter.factor=8",
             "run.export.adapter=kohya"),
}  # fmt: skip
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
    "flux lora": (*FLOW, *FAMILIES["flux"], *LORA, *CACHED, "model.family=flux",
                  "model.path={world}/models/tiny-flux", "run.save.every=3 steps", "run.steps=6"),
}  # fmt: skip
"""Runs that one tree begins and the other ends. Each saves a checkpoint before the step in which it dies."""
DRAWN = ("--steps=2", "--seed=1,2", "run.device=cpu", "run.threads=1")
ONE = ("--prompt=a star", "--steps=2", "--seed=1", "run.device=cpu", "run.threads=1")


def train(*words: str, folder: str = "run", fault: str = "", processes: int = 1) -> Command:
    return Command(("train", "empty.yaml", *OURS, *words, f"run.folder={folder}"), fault, processes)


def command(*words: str) -> Command:
    return Command(words)


def foreign_line(verb: str, dialect: str, line: str, *ours: str) -> Command:
    return Command((verb, "--as", dialect, *ours, "--", *shlex.split(line)))


def translations(lines: Iterable[str]) -> tuple[Command, ...]:
    split = [line.split() for line in lines if line.strip()]
    return tuple(command("translate", "--as", words[0], "--", *words[1:]) for words in split)


def model_of(recipe: str) -> str:
    """The tiny model for a recipe that ships."""
    for start, model in {
        "flux": "flux",
        "chroma": "chroma",
        "klein": "flux2",
        "krea2": "krea2",
        "qwen": "qwen-image",
        "sd35": "sd3",
        "z-image": "z-image",
    }.items():
        if recipe.startswith(start):
            return model
    return "sdxl" if "sdxl" in recipe else "sd"


CHECKED = {"mini-lora": ("data.captions.trigger=<wug>",)}
"""What the check of a shipped recipe needs besides, with the captions that are here."""


def checks(recipes: Iterable[str]) -> tuple[Command, ...]:
    """`check` of shipped recipes over what is here. Those of clips stay away: they want clips of their sizes."""
    return tuple(
        command("check", name, "--json", f"model.path={{world}}/models/tiny-{model_of(name)}", "model.weights=random",
                "model.vae=null", "data.path={world}/few", "data.batch_size=2",
                f"data.resolution={256 if 'everydream' in name else 64}", "optim.optimizer={kind: adamw}", *OURS,
                "run.folder=run", *CHECKED.get(name, ()))
        for name in recipes
        if not name.startswith(("latte", "ltx", "wan", "tiny_clips"))
    )  # fmt: skip


# --- journeys by subject --------------------------------------------------------------------------------------------


def stable_diffusion() -> list[Journey]:
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
                        "sample.image={world}/images/00.png", "--solver=dpm++", "--guidance=1,5", *DRAWN),
                command("convert", export, "single.safetensors"),
                command("convert", "single.safetensors", "folder", "--dtype=fp16", "--config={world}/models/tiny-sd"),
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
        Journey(
            "recipe file",
            (
                command("train", "mine.yaml"),
                command("check", "mine.yaml", "--json"),
            ),
            files=(("mine.yaml", recipe_text(*OURS, *TEXT_TRAINED, "run.steps=2", "run.folder=run")),),
        ),
        Journey("text encoder", (train(*TEXT_TRAINED, "run.steps=4"),)),
        Journey("half precision", (train(*NARROW, "data.buckets.shape=square", "run.precision=bf16",
                                         "run.weight_dtype=alone", "run.steps=2"),
                                   train(*NARROW, "data.buckets.shape=square", "run.precision=fp16",
                                         "run.steps=2", folder="fp16"))),
        Journey(
            "optimizers",
            tuple(train(*NARROW, *CACHED, f"optim.optimizer={settings}", "run.steps=3", "run.export.every=null",
                        folder=name) for name, settings in OPTIMIZERS.items()),
        ),
        Journey("everydream folder", (train(*DREAMS, "run.steps=4", "run.schedule_file=true"),)),
        Journey(
            "formats",
            tuple(train(*NARROW, f"data.format={kind}", f"data.path={{world}}/{place}", "run.steps=2",
                        "run.schedule_file=true", folder=kind)
                  for kind, place in FORMATS.items()),
        ),
    ]  # fmt: skip


FORMATS = {"kohya": "kohya", "metadata": "table", "webdataset": "shards", "mindone": "mindone/images"}


def sdxl() -> Journey:
    export = "run/exports/step-00000002"
    return Journey(
        "sdxl",
        (
            train(*SDXL, "run.steps=2"),
            train(*SDXL, *CACHED, "data.cache.crops=2", "run.steps=2", "run.export.single_file=true", folder="two"),
            train(*SDXL, *CACHED, "data.cache.crops=2", "run.steps=3", "run.allow_change=[run.steps]", folder="two"),
            command("sample", "run", "--size=64", "--out=drawn", *ONE),
            command("convert", export, "single.safetensors"),
            command("convert", "single.safetensors", "folder", f"--config={export}"),
            train(*SDXL, *LORA, "run.steps=2", folder="lora"),
        ),
    )  # fmt: skip


def latte() -> Journey:
    return Journey(
        "latte",
        (
            train(*LATTE, "run.steps=2"),
            train(*LATTE, *CACHED, "run.steps=3", "run.schedule_file=true", folder="two"),
            train(*LATTE, *CACHED, "run.steps=4", "run.allow_change=[run.steps]", folder="two"),
            command("sample", "two", "--prompt=a RED ball", "--size=32x32", "--out=drawn", *DRAWN),
            train(*LATTE, *LORA, "run.steps=2", folder="lora"),
        ),
        needs="av",
    )  # fmt: skip


def flow_family(name: str) -> Journey:
    """A flow-matching model: trained, from the cache, resumed, sampled, converted, with an adapter. FLUX is only
    converted at its full size, which diffusers demands of a single file."""
    own = (*FLOW, *FAMILIES[name], f"model.family={name}", f"model.path={{world}}/models/tiny-{name}")
    export, longer = "run/exports/step-00000002", ("run.steps=2", "run.allow_change=[run.steps]")
    size = ("--size=32x32", f"--frames={5 if name == 'wan' else 9}") if name in ("wan", "ltx") else ("--size=48x48",)
    single = () if name == "flux" else ("run.export.single_file=true",)
    convert = (
        command("convert", export, "single.safetensors"),
        command("convert", "single.safetensors", "folder", f"--config={export}"),
    )
    return Journey(
        name,
        (
            train(*own, "run.steps=2", "run.schedule_file=true"),
            command("cache", "empty.yaml", *OURS, *own, *CACHED),
            train(*own, *CACHED, "run.steps=1", "run.export.every=null", folder="cached"),
            train(*own, *CACHED, *longer, *single, folder="cached"),
            command("sample", "run", "--out=drawn", *size, *ONE),
            *(convert if single else ()),
            train(*own, *LORA, *CACHED, "run.steps=2", folder="lora"),
            command("sample", export, "--adapter=lora/exports/step-00000002", "--out=adapted", *size, *ONE),
        ),
        needs="av" if name in ("wan", "ltx") else "",
    )


def adapters() -> Journey:
    """Every kind of adapter: trained, sampled with, merged; a LoRA in every layout, resized, extracted."""
    base, model = "base/exports/step-00000001", "model.path=base/exports/step-00000001"
    own = (*NARROW, "data.path={world}/few", "data.batch_size=2", "run.log_samples=false", "optim.ema.rule=none")
    commands = [train(*own, "run.steps=1", folder="base")]
    for name, settings in ADAPTERS.items():
        file = "run" if name in ("loha", "lokr") else "pytorch_lora_weights"
        path = f"{name}/exports/step-00000002/{file}.safetensors"
        commands += [
            train(*own, model, "model.weights=files", "model.adapter.rank=2", "optim.lr=1e-2", *settings, "run.steps=2",
                  folder=name),
            command("sample", base, f"--adapter={path}:0.8", "--size=48", f"--out={name}-drawn", *ONE),
            command("merge", base, path, f"{name}-merged"),
        ]  # fmt: skip
    lora = "lora/exports/step-00000002/pytorch_lora_weights.safetensors"
    commands += [
        command("convert", lora, "kohya.safetensors", f"--base={base}", "--layout=kohya"),
        command("convert", "kohya.safetensors", "again.safetensors", f"--base={base}", "--layout=diffusers"),
        command("resize", lora, "small.safetensors", f"--base={base}", "--rank=1"),
        command("extract", base, "lora-merged", "extracted.safetensors", "--rank=2"),
        command("check-adapter", lora),
        command("sample", "lora", "--size=48", "--out=run-drawn", *ONE),
    ]
    return Journey("adapters", tuple(commands), needs="peft")


def processes() -> Journey:
    """Two processes over gloo on the loopback; one goes on with what two began."""
    own = (*NARROW, "run.steps=2", "run.log_samples=true", "optim.ema.rule=ramp")
    lora = (*NARROW, *CACHED, *LORA, "run.steps=2")
    return Journey(
        "two processes",
        (
            train(*own, "run.runtime=ddp", folder="ddp", processes=2),
            train(*own, "run.runtime=fsdp", *CACHED, folder="fsdp", processes=2),
            train(*own, "run.runtime=auto", *CACHED, "run.steps=3",
                  "run.allow_change=[run.steps, run.runtime]", folder="fsdp"),
            train(*lora, "run.runtime=fsdp", folder="lora", processes=2),
        ),
    )  # fmt: skip


def mindspore() -> Journey:
    """MindONE's document from converted weights to images; MindSpore's files written and read."""
    base, ours = "base/exports/step-00000001", (*OURS, "model.config=base/exports/step-00000001")
    own = {"train": ours, "merge": (f"--config={base}",), "sample": (f"model.config={base}", "--size=64x64")}
    lines = [foreign_line(verb, "mindone-sdxl", line.replace("{base}", base), *own.get(verb, ()))
             for verb, line in MINDONE.values()]  # fmt: skip
    written = ("run.export.mindspore=true", "run.export.single_file=true", "run.export.mindspore_optimizer=true")
    return Journey(
        "mindone-sdxl",
        (
            train(*SDXL, "run.steps=1", "optim.ema.rule=none", folder="base"),
            *lines,
            command("convert", "base.ckpt", "back.safetensors", f"--config={base}"),
            train(*SDXL, *written, "run.steps=1", "optim.ema.rule=none", folder="written"),
        ),
    )


def trained_lines() -> list[Journey]:
    """A small line of every other dialect, checked and trained."""
    ours = (*OURS, "model.weights=random", "sample.steps=1", "sample.size=[32, 32]")
    return [
        Journey(
            dialect,
            (foreign_line("train", dialect, line, *ours, *TRAINED_OURS.get(dialect, ())),),
            needs="av" if dialect == "open-sora-plan" else "",
            files=EVERYDREAM_FILES if dialect == "everydream2" else (),
        )
        for dialect, line in TRAINED.items()
    ]


def journeys(recipes: Sequence[str]) -> list[Journey]:
    """What both trees do. recipes: the oldest names of those that ship with both."""
    return [
        *stable_diffusion(),
        sdxl(),
        latte(),
        *(flow_family(name) for name in FAMILIES),
        adapters(),
        processes(),
        mindspore(),
        *trained_lines(),
        *(Journey(f"resume {name}", (resumed(name),), _needs(name)) for name in RESUMED),
        Journey("translated lines", translations(LINES.splitlines())),
        Journey("check of recipes", checks(recipes)),
        Journey("lists", tuple(command("ls", kind) for kind in LISTS)),
    ]


LISTS = ("recipes", "models", "families", "formats", "dialects", "runtimes", "optimizers", "callbacks")


# --- across versions ------------------------------------------------------------------------------------------------


def _needs(name: str) -> str:
    return "av" if name == "latte" else ""


def resumed(name: str, fault: str = "") -> Command:
    """saved at once: the checkpoint before the fault is complete."""
    return train(*RESUMED[name], "run.save.asynchronous=false", fault=fault)


def begun() -> list[Journey]:
    """What the commit begins: runs that die half-way."""
    faults = {name: f"step.begin@{3 if name == 'latte' else 5}:kill" for name in RESUMED}
    return [Journey(f"begun {name}", (resumed(name, faults[name]),), _needs(name)) for name in RESUMED]


def ended() -> list[Journey]:
    """What this tree does with folders that the commit has made: it ends the runs, draws from a run, finds the cache
    complete."""
    return [
        *(Journey(f"begun {name}", (resumed(name),), _needs(name)) for name in RESUMED),
        Journey(
            "tiny_cpu",
            (command("sample", "run", "--prompt=a red circle", "--size=64", "--out=drawn-again", *DRAWN),
             command("sample", "run", "--prompt=a star", "--weights=shadow", "--size=64x48", "--out=ema-again",
                     "--solver=euler", *DRAWN)),
        ),
        Journey("cached", (Command(("cache", "empty.yaml", *OURS, *NARROW, *CACHED, "data.cache.crops=2")),)),
    ]  # fmt: skip


# --- plans ----------------------------------------------------------------------------------------------------------


def recipe_text(*words: str) -> str:
    """A recipe as YAML, of settings as they are written on a command line."""
    document: dict[str, object] = {"schema": 1}
    for word in words:
        path, _, text = word.partition("=")
        *sections, key = path.split(".")
        place = document
        for section in sections:
            place = place.setdefault(section, {})  # type: ignore[assignment]  # a section
        place[key] = text if text.startswith("{world}") else yaml.safe_load(text)
    return yaml.safe_dump(document, sort_keys=False)


def translate(journey: Journey, words: Words) -> Journey:
    """The journey with its command lines and recipes in the words of a tree."""
    commands = tuple(replace(command, line=words.translate_line(command.words)) for command in journey.commands)
    files = tuple(
        (name, yaml.safe_dump(words.translate_recipe(yaml.safe_load(text)), sort_keys=False))
        if name.endswith(".yaml") else (name, text)
        for name, text in (("empty.yaml", "schema: 1\n"), *journey.files)
    )  # fmt: skip
    return replace(journey, commands=commands, files=files)


def written(items: Sequence[Journey]) -> str:
    return json.dumps([asdict(item) for item in items], indent=1)


def read(text: str) -> list[Journey]:
    return [
        Journey(
            journey["name"],
            tuple(
                Command(tuple(c["words"]), c["fault"], c["processes"], tuple(c["line"])) for c in journey["commands"]
            ),
            journey["needs"],
            tuple((name, text) for name, text in journey["files"]),
        )
        for journey in json.loads(text)
    ]
