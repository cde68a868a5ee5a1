"""The verbs of `mezzotint VERB …` and their switches: the one table that help, the parser (`words.py`) and the verbs
themselves read. No pydantic and no torch here, so that `--help` answers at once.
"""

from __future__ import annotations

from mezzotint.tasks.reading.verb import ALLOW as ALLOW
from mezzotint.tasks.reading.verb import AS as AS
from mezzotint.tasks.reading.verb import MANY as MANY
from mezzotint.tasks.reading.verb import REPLACE as REPLACE
from mezzotint.tasks.reading.verb import Switch as Switch
from mezzotint.tasks.reading.verb import Verb as Verb

_PROCESSES = Switch("--processes=N", "as N processes would share the batches")
_DTYPE = Switch(
    "--dtype=fp16", "fp32, fp16 or bf16; without it every tensor keeps its type", choices=("fp32", "fp16", "bf16")
)
_BASE = Switch("--base=MODEL", "of an adapter, the model that it is for: a folder, a file, or one that ships")
_LAYOUT = Switch(
    "--layout=kohya",
    "of an adapter that is written: diffusers, kohya (A1111, Forge, ComfyUI) or comfy (ComfyUI)",
    choices=("diffusers", "kohya", "comfy"),
)
_CHECK = (
    Switch("--json", "one JSON document instead of the page"),
    Switch("--all", "every setting, defaults included"),
    Switch(
        "--deep",
        "decodes every picture, also with data.verify=on_first_use, which decodes a picture only when it is used",
    ),
    Switch("--dry", "runs two real steps and tells how long the run would take"),
    _PROCESSES,
)
_DOCTOR = (
    Switch("--json", "one JSON document instead of the text"),
    Switch("--html=FILE", "one page with small pictures, besides"),
    Switch("--processes=N", "tell what N processes would leave over, too"),
    REPLACE,
)
_BENCH = (
    Switch("--steps=N", "how many steps; without it the run's own length, at most 101"),
    Switch("--warm-up=N", "steps that the numbers leave out; 5 without it, or a quarter of a short run"),
    Switch("--fast", "a second row, with caches and on GPUs compiled"),
    Switch("--as-written", "of a foreign line, only the row as it is written"),
    Switch("--against=stock", "a row with the loop of diffusers' own script, over the same pictures"),
    Switch("--rounds=N", "compares rows in N blocks of steps; without it in blocks of 10 steps"),
    Switch("--data", "what listing, planning, decoding and caches cost, in the place of training"),
    Switch("--gpu", "in place of a recipe: checks this GPU (losses, memory, speed, resuming) and writes one file"),
    Switch("--dry-run", "with --gpu: a model of a sixteenth of the width, also on a CPU"),
    Switch("--stand-in=N", "train on N drawn pictures in the place of the recipe's"),
    Switch("--target=LOSS", "tell whether the last micro-batch's loss is below it"),
    Switch("--json", "the JSON document instead of the table"),
    Switch("--out=FOLDER", "where the results go; without it a new folder in bench/"),
    REPLACE,
)
_SAMPLE = (
    Switch(
        "--prompt=TEXT",
        "what to draw; more texts may follow it",
        aliases=("--prompts",),
        repeats=True,
        gathers=True,
        may_be_empty=True,
    ),
    Switch(
        "--file=FILE",
        "prompts: .txt, one a line, options behind them (--n --w --h --s --d --l), or .json",
        repeats=True,
    ),
    Switch("--negative=TEXT", "what guidance moves away from", aliases=("--negative-prompt",), may_be_empty=True),
    Switch("--size=WxH", "in pixels, 512 for a square, or one of SDXL's sizes by name; several with commas between"),
    Switch("--seed=N", "of the noise, -1 a new one; several with commas between, or 1-4", aliases=("--seeds",)),
    Switch("--index=N", "number of the first prompt, which addresses its noise; 0 without"),
    Switch("--steps=N", "", aliases=("--num-inference-steps",), setting="sample.steps"),
    Switch(
        "--guidance=G",
        "also --cfg; several with commas between",
        aliases=("--cfg", "--cfg-scale", "--guidance-scale"),
        setting="sample.guidance",
    ),
    Switch("--rescale=SHARE", "", setting="sample.guidance_rescale"),
    Switch("--solver=NAME", "", aliases=("--sampler", "--scheduler"), setting="sample.solver"),
    Switch("--spacing=NAME", "", setting="sample.timestep_spacing"),
    Switch("--batch=N", "", aliases=("--batch-size",), setting="sample.batch_size"),
    Switch("--weights=KIND", "of a run: raw, or ema for the average of its weights, which is usual where there is one"),
    Switch(
        "--adapter=FILE:SCALE",
        "an adapter (LoRA and its kin) laid into the model, of any layout; 1 without a scale; several, one switch each",
        aliases=("--lora",),
        repeats=True,
    ),
    Switch(
        "--embedding=WORD=FILE",
        "a new word and its file (textual inversion), such as '<toy>=learned_embeds.safetensors'; several, one each",
        aliases=("--textual-inversion",),
        repeats=True,
    ),
    Switch("--frames=N", "of models that draw clips", setting="sample.clip.frames"),
    Switch("--rate=FPS", "frames a second of a clip's file", setting="sample.clip.rate"),
    Switch("--out=FOLDER", "where the pictures go; without it a new folder in samples/"),
    Switch("--numbered", "calls pictures 000000000.png and so on, after those that are there"),
    REPLACE,
)
_CONVERT = (
    _DTYPE,
    Switch(
        "--ema=use",
        "averaged copies in a single file: ignore them, use them as the denoiser, or keep both",
        choices=("ignore", "use", "keep"),
    ),
    Switch("--prediction=v", "epsilon or v, for files that do not say it", choices=("epsilon", "v")),
    Switch("--config=FOLDER", "configurations of a single file of unusual size"),
    Switch(
        "--part=denoiser_2",
        "which of Wan 2.2 A14B's two denoisers a single file has, or shall have",
        choices=("denoiser", "denoiser_2"),
    ),
    _BASE,
    _LAYOUT,
    REPLACE,
)
_MERGE = (
    Switch("--weights=A,B", "sum the models up, one weight for each"),
    _DTYPE,
    Switch("--ema=use", "take the averaged copies of later files", choices=("ignore", "use")),
    Switch("--config=FOLDER", "configurations of a first file of unusual size"),
    Switch("--report=FILE.json", "write down where every tensor came from"),
    _BASE,
    _LAYOUT,
    REPLACE,
)
_RANK = (
    Switch("--rank=N", "of the new adapter, the most that a layer gets"),
    Switch("--share=S", "as small a rank for each layer as leaves out at most this share of its change, such as 0.1"),
    Switch(
        "--sv-ratio=R",
        "as small a rank for each layer as keeps singular values of at least the largest / R, such as 20",
    ),
    Switch("--sv-cumulative=S", "as small a rank for each layer as reaches this share of the sum of singular values"),
    Switch("--convolutions=N", "the most that convolutions of 3x3 get; --rank without it"),
    Switch("--dtype=fp16", "fp32, fp16 or bf16", choices=("fp32", "fp16", "bf16")),
    _LAYOUT,
    Switch("--config=FOLDER", "configurations of a model's single file of unusual size"),
    REPLACE,
)
_BOARD = (
    Switch("--port=N", "where it listens; a free one without it"),
    Switch("--host=ADDRESS", "listen elsewhere than at 127.0.0.1; needs a password"),
    Switch("--password-file=FILE", "a file with the password; asked for on a terminal without it"),
    Switch("--allow-host=NAME", "a name of this machine that browsers may write; several, one each", repeats=True),
    Switch("--data", "show data of runs also where they lie below none of the folders"),
    Switch("--read-only", "without actions"),
)
_IMAGE = "sample.image={}, and sample.strength=0.75 for how much of it is drawn anew"
_INSTEAD_OF_SAMPLE = {
    "--width": "--size={}xHEIGHT, or --size={} for a square", "--height": "--size=WIDTHx{}, or --size={} for a square",
    "--image": _IMAGE, "--init-image": _IMAGE, "--init-img": _IMAGE, "--img": _IMAGE,
    "--strength": "sample.strength={}", "--denoise": "sample.strength={}",
    "--denoising-strength": "sample.strength={}", "--refiner": "sample.refiner.path={}",
    "--precision": "run.precision={}", "--device": "run.device={}", "--clip-skip": "model.clip_skip={}",
    "--vae": "model.vae={}",
}  # fmt: skip

_INSTEAD_OF_LAST = dict.fromkeys(("--out", "--output", "--to", "-o"), "{} as the last name, without a switch")
"""Of verbs that end with where they write."""

_OF_DIFFUSERS = "--pretrained_model_name_or_path=sd-v1-5 --train_data_dir=photos"

VERBS: tuple[Verb, ...] = (
    Verb(
        "train",
        "train a model, or go on with a run",
        "RECIPE [key=value …]",
        (
            ("mezzotint train recipe.yaml", "starts the run, or goes on from its newest checkpoint"),
            ("mezzotint train recipe.yaml optim.lr=1e-6 run.name=slow", "the same recipe with two settings changed"),
            ("torchrun --nproc-per-node 2 -m mezzotint train recipe.yaml", "on two devices, with the same draws"),
        ),
        switches=(REPLACE,),
        reads_recipe=True,
    ),
    Verb(
        "cache",
        "encode pictures, clips and captions once, ahead of the training",
        "RECIPE [key=value …]",
        (
            ("mezzotint cache recipe.yaml data.cache.latents=true", "encodes what is not in the cache yet"),
            ("mezzotint cache recipe.yaml data.cache.text=true", "encodes the captions"),
            ("mezzotint cache recipe.yaml data.cache.path=/disk/cache", "keeps the cache in another folder"),
        ),
        reads_recipe=True,
    ),
    Verb(
        "check",
        "read everything, train nothing: recipe, files, batches, memory",
        "RECIPE [key=value …]",
        (
            ("mezzotint check recipe.yaml", "tells what the run would do, and whether it fits"),
            ("mezzotint check recipe.yaml data.resolution=768", "the same at another size"),
            ("mezzotint check recipe.yaml --dry", "takes two real steps and tells how long the run would take"),
        ),
        switches=_CHECK,
        reads_recipe=True,
    ),
    Verb(
        "doctor",
        "look at every picture and caption of a data set, or at this machine",
        "[DATA|RECIPE [key=value …]]",
        (
            ("mezzotint doctor photos/", "duplicates, captions, shapes, unused files; what to do about each"),
            ("mezzotint doctor recipe.yaml --json", "the data as this recipe trains them, for programs"),
            ("mezzotint doctor", "versions, devices, disk, and what is known not to work together"),
        ),
        switches=_DOCTOR,
    ),
    Verb(
        "translate",
        "print the recipe that the command line of another trainer amounts to",
        "--as NAME [--processes=N] -- THE LINE AS IT IS",
        (
            (
                f"mezzotint translate --as diffusers-sd -- {_OF_DIFFUSERS}",
                "the recipe, and a note for each flag that is not simply carried over",
            ),
            (
                f"mezzotint translate --as diffusers-sd --processes=8 -- {_OF_DIFFUSERS} --use_ema",
                "as eight processes would share the batches",
            ),
            (
                f"mezzotint translate --as diffusers-sd -- python train_text_to_image.py {_OF_DIFFUSERS} > recipe.yaml",
                "keeps it as a recipe; the launcher may stay",
            ),
        ),
        switches=(AS, _PROCESSES),
        names=(0, 0),
    ),
    Verb(
        "bench",
        "measure how fast a recipe trains here, and what it costs",
        "RECIPE [key=value …]",
        (
            ("mezzotint bench recipe.yaml", "images a second, memory, MFU; a plot of loss and step time"),
            ("mezzotint bench recipe.yaml --steps=30 --fast", "beside it a row with everything that is faster"),
            ("mezzotint bench recipe.yaml --stand-in=833", "on drawn pictures in the place of the recipe's"),
        ),
        switches=_BENCH,
        reads_recipe=True,
    ),
    Verb(
        "prove",
        "show on this machine that a killed run goes on to the same bits",
        "RECIPE [key=value …]",
        (
            ("mezzotint prove recipe.yaml", "8 steps in one go against 8 with a kill between, bit by bit"),
            (
                "mezzotint prove recipe.yaml run.deterministic=true",
                "on a GPU, with kernels that add up in one order",
            ),
            ("mezzotint prove recipe.yaml --processes=2", "with two processes on this machine, under ddp or fsdp"),
        ),
        switches=(Switch("--processes=N", "prove it of N processes on this machine"),),
        reads_recipe=True,
        floor="tasks.proof",
    ),
    Verb(
        "verify",
        "read again what a run was made of, and name what has changed",
        "RUN",
        (
            ("mezzotint verify runs/mine", "recipe, checkpoints, weights and data against the run's manifest.json"),
            ("mezzotint verify runs/mine && mezzotint train runs/mine", "goes on only with the very same inputs"),
            ("mezzotint verify .", "the run folder in which one stands"),
        ),
        names=(1, 1),
        floor="tasks.proof",
    ),
    Verb(
        "diff",
        "tell what two runs differ in, and from which step on",
        "RUN RUN",
        (
            ("mezzotint diff runs/a runs/b", "settings, data, weights, versions, the first step whose loss differs"),
            ("mezzotint diff runs/a runs/b --json", "the same for programs"),
            ("mezzotint diff runs/fox runs/fox-2", "of a run and one that was begun beside it"),
        ),
        switches=(Switch("--json", "one JSON document instead of the page"),),
        names=(2, 2),
        floor="tasks.proof",
    ),
    Verb(
        "sample",
        "draw pictures or clips from a model, a run or a recipe",
        "MODEL|RUN|RECIPE [--prompt=TEXT …] [key=value …]",
        (
            ("mezzotint sample runs/mine --prompt='a red fox'", "from the run's newest checkpoint"),
            (
                "mezzotint sample model/ --adapter=fox.safetensors:0.8 --file=prompts.txt --seed=1,2",
                "a sheet of pictures",
            ),
            (
                "mezzotint sample model/ --prompt='a red fox' sample.image=photo.png sample.strength=0.6",
                "begins with a picture (img2img); a strength of 1 leaves little of it",
            ),
        ),
        switches=_SAMPLE,
        has_tools=True,
        instead=_INSTEAD_OF_SAMPLE,
    ),
    Verb(
        "convert",
        "turn files of models and adapters into another form: single file, folder, layout",
        "SOURCE DESTINATION",
        (
            ("mezzotint convert model.safetensors model/", "a single file into a folder that diffusers opens"),
            (
                "mezzotint convert runs/run/exports/step-00001000 mine.safetensors --dtype=fp16",
                "a folder into one file",
            ),
            ("mezzotint convert fox.safetensors ui.safetensors --base=sdxl --layout=kohya", "an adapter's names"),
        ),
        switches=_CONVERT,
        instead=_INSTEAD_OF_LAST,
        has_tools=True,
        names=(2, 2),
        floor="tasks.weights",
    ),
    Verb(
        "merge",
        "lay trained parts and adapters over their model, sum models up, make adapters one",
        "MODEL FILE… DESTINATION",
        (
            ("mezzotint merge sdxl.safetensors unet_1000.ckpt mine.safetensors", "a trained denoiser in its model"),
            ("mezzotint merge sdxl/ a.safetensors lora.safetensors:0.8 mine/", "left to right; an adapter at 0.8"),
            ("mezzotint merge a/ b/ half.safetensors --weights=0.5,0.5 --dtype=fp16", "a weighted sum of models"),
        ),
        switches=_MERGE,
        instead=_INSTEAD_OF_LAST,
        has_tools=True,
        names=(2, MANY),
        floor="tasks.weights",
    ),
    Verb(
        "extract",
        "make an adapter of the difference between two models",
        "BASE TUNED DESTINATION --rank=N",
        (
            ("mezzotint extract sdxl.safetensors tuned.safetensors fox.safetensors --rank=32", "a LoRA of rank 32"),
            ("mezzotint extract sdxl/ tuned/ fox.safetensors --rank=64 --share=0.2", "less where less does"),
            ("mezzotint extract sd15/ tuned/ a.safetensors --rank=8 --layout=diffusers --dtype=fp16", "for diffusers"),
        ),
        switches=_RANK,
        instead=_INSTEAD_OF_LAST,
        names=(3, 3),
        floor="tasks.weights",
    ),
    Verb(
        "resize",
        "bring an adapter to another rank",
        "ADAPTER DESTINATION --base=MODEL --rank=N",
        (
            ("mezzotint resize big.safetensors small.safetensors --base=sdxl --rank=8", "tells what is left out"),
            ("mezzotint resize big.safetensors small.safetensors --base=sdxl --rank=64 --share=0.1", "by share"),
            ("mezzotint resize lokr.safetensors lora.safetensors --base=sd1 --rank=16", "a LoKr as a LoRA"),
        ),
        switches=(_BASE, *_RANK),
        instead=_INSTEAD_OF_LAST,
        names=(2, 2),
        floor="tasks.weights",
    ),
    Verb(
        "check-adapter",
        "print which programs read an adapter file, how many of its layers, at what strength",
        "FILE [--base=MODEL]",
        (
            ("mezzotint check-adapter fox.safetensors", "the model is recognised by the names in the file"),
            ("mezzotint check-adapter fox.safetensors --base=FLUX.1-dev", "every layer compared with a model's"),
            ("mezzotint check-adapter runs/fox/exports/step-00001000", "a run's export"),
        ),
        switches=(_BASE, Switch("--config=FOLDER", "configurations of a model's single file of unusual size")),
        names=(1, 1),
        floor="tasks.weights",
    ),
    Verb(
        "explain",
        "tell what a setting, a section or an error code means",
        "PATH|CODE|WORDS|NAME OF ANOTHER TRAINER …",
        (
            ("mezzotint explain optim.lr", "one setting: type, default, what a change does on resume"),
            ("mezzotint explain data.cache", "every setting of a section"),
            ("mezzotint explain E1007", "what an error code means and what to do"),
        ),
        names=(1, MANY),
        flags_are_names=True,
    ),
    Verb(
        "schema",
        "print the JSON Schema of recipes, for editors",
        "",
        (
            ("mezzotint schema", "prints it"),
            ("mezzotint schema > recipe.schema.json", "keeps it beside the recipes"),
            ("mezzotint schema --markdown", "prints the reference page of all settings"),
        ),
        switches=(Switch("--markdown", "the reference page instead of the schema"),),
        names=(0, 0),
    ),
    Verb(
        "ls",
        "list shipped recipes and models, families, formats, dialects, runtimes, …",
        "[recipes|models|families|formats|dialects|runtimes|optimizers|callbacks]",
        (
            ("mezzotint ls", "everything that can be named in a recipe"),
            ("mezzotint ls recipes", "the shipped recipes"),
            ("mezzotint ls families formats", "the kinds of models, and of data"),
        ),
    ),
    Verb(
        "cp",
        "copy a shipped recipe, to change it",
        "NAME [DESTINATION]",
        (
            ("mezzotint cp tiny_cpu", "copies it to tiny_cpu.yaml in this folder"),
            ("mezzotint cp tiny_cpu mine.yaml", "copies it under another name"),
            ("mezzotint cp tiny_cpu recipes/", "copies it into a folder"),
        ),
        switches=(REPLACE,),
        names=(1, 2),
    ),
    Verb(
        "migrate",
        "rename settings of a recipe that had other names in earlier commits",
        "RECIPE …",
        (
            ("mezzotint migrate mine.yaml", "rewrites it in place and prints each change"),
            ("mezzotint migrate mine.yaml --dry-run", "only prints what would change"),
            ("mezzotint migrate a.yaml b.yaml", "several recipes"),
        ),
        switches=(Switch("--dry-run", "print the changes and write nothing"),),
        names=(1, 100),
    ),
    Verb(
        "board",
        "look at data, runs and pictures in a browser",
        "[FOLDER …]",
        (
            ("mezzotint board", "prints an address; shows the runs below this folder"),
            ("mezzotint board runs /data/runs --read-only", "the runs of two folders, without actions"),
            ("mezzotint board --port=8642", "at a port of your own, for an SSH tunnel: ssh -L 8642:127.0.0.1:8642"),
        ),
        switches=_BOARD,
        floor="board",
    ),
    Verb(
        "report",
        "write the page of a run or a data set as one HTML file",
        "RUN|DATA [--out=FILE.html]",
        (
            ("mezzotint report runs/mine", "writes mine.html, which needs no network: to be sent to somebody"),
            ("mezzotint report photos --out=data.html", "a data set: samples, sizes, what is skipped and why"),
            ("mezzotint report runs/mine --out=reports/mine.html", "in another place"),
        ),
        switches=(Switch("--out=FILE.html", "where it goes; NAME.html in the current folder without it"), REPLACE),
        names=(1, 1),
        floor="board",
    ),
)
