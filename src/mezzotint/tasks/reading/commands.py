"""The commands of `mezzotint COMMAND …` and their options: the table for help, parser and commands. It imports neither
pydantic nor torch, to keep `--help` fast.
"""

from __future__ import annotations

from mezzotint.tasks.reading.parser import ALLOW as ALLOW
from mezzotint.tasks.reading.parser import AS as AS
from mezzotint.tasks.reading.parser import MANY as MANY
from mezzotint.tasks.reading.parser import REPLACE as REPLACE
from mezzotint.tasks.reading.parser import Command as Command
from mezzotint.tasks.reading.parser import Option as Option

# fmt: off
_TYPES = ("fp32", "fp16", "bf16")
_PROCESSES = Option("--processes=N", "as N processes would share the batches")
_DTYPE = Option("--dtype=fp16", "fp32, fp16 or bf16; without it every tensor keeps its type", choices=_TYPES)
_BASE = Option("--base=MODEL", "of an adapter, the model that it is for: a folder, a file, or one that ships")
_LAYOUT = Option("--layout=kohya", "of an adapter that is written: diffusers, kohya (A1111, Forge, ComfyUI), comfy "
                 "(ComfyUI), or a trainer's own: ai-toolkit, diffusion-pipe, musubi, onetrainer or simpletuner",
                 choices=("diffusers", "kohya", "comfy", "ai-toolkit", "diffusion-pipe", "musubi", "onetrainer",
                          "simpletuner"))
_TRANSLATE = (
    AS,
    Option("--to=NAME", "the trainer whose file or command line is printed for a recipe, as in `--as`; notes go to the "
           "error stream"),
    Option("--out=FILE", "with --to, the file to write instead of printing it; the folder, if there are several"),
    _PROCESSES,
    REPLACE,
)
_CHECK = (
    Option("--json", "one JSON document instead of the page"),
    Option("--all", "every setting, defaults included"),
    Option("--deep", "decodes every image, also with data.verify=on_first_use"),
    Option("--dry", "runs two real steps and estimates how long the run would take"),
    Option("--fit=12GB", "finds the cheapest settings with which a step fits on a GPU of this size, and why"),
    Option("--host=32GB", "with --fit, the host memory for blocks and states; any amount without it"),
    Option("--out=FILE", "with --fit, the recipe with these settings"),
    _PROCESSES,
    REPLACE,
)
_DOCTOR = (
    Option("--json", "one JSON document instead of the text"),
    Option("--html=FILE", "also write one page with small images"),
    Option("--processes=N", "also report what N processes would leave over"),
    REPLACE,
)
_BENCH = (
    Option("--steps=N", "number of steps; without it the run's own length, at most 101"),
    Option("--warm-up=N", "steps that the numbers leave out; 5 without it, or a quarter of a short run"),
    Option("--fast", "a second row, with caches and on GPUs compiled"),
    Option("--as-written", "of a foreign line, only the row as it is written"),
    Option("--against=stock", "a row with the loop of diffusers' own script, on the same images"),
    Option("--stand-in=N", "trains on N synthetic images instead of the recipe's"),
    Option("--target=LOSS", "reports whether the last micro-batch's loss is below it"),
    Option("--json", "the JSON document instead of the table"),
    Option("--out=FOLDER", "where the results go; without it a new folder in bench/"),
    REPLACE,
)
_SAMPLE = (
    Option("--prompt=TEXT", "what to generate; more texts may follow", aliases=("--prompts",), repeats=True,
           gathers=True, may_be_empty=True),
    Option("--file=FILE", "prompts: .txt, one a line, with options after them (--n --w --h --s --d --l), or .json",
           repeats=True),
    Option("--negative=TEXT", "what guidance moves away from", aliases=("--negative-prompt",), may_be_empty=True),
    Option("--size=WxH", "in pixels, 512 for a square, or one of SDXL's sizes by name; several separated by commas"),
    Option("--seed=N", "of the noise, -1 a new one; several separated by commas, or 1-4", aliases=("--seeds",)),
    Option("--index=N", "number of the first prompt, which addresses its noise; 0 without"),
    Option("--steps=N", "", aliases=("--num-inference-steps",), setting="sample.steps"),
    Option("--guidance=G", "also --cfg; several separated by commas",
           aliases=("--cfg", "--cfg-scale", "--guidance-scale"), setting="sample.guidance"),
    Option("--rescale=SHARE", "", setting="sample.guidance_rescale"),
    Option("--solver=NAME", "", aliases=("--sampler", "--scheduler"), setting="sample.solver"),
    Option("--spacing=NAME", "", setting="sample.timestep_spacing"),
    Option("--batch=N", "", aliases=("--batch-size",), setting="sample.batch_size"),
    Option("--weights=KIND", "of a run: raw, or ema for averaged weights, the default where there are any"),
    Option("--adapter=FILE:SCALE", "an adapter (LoRA, LoHa, LoKr, DoRA) applied to the model, in any layout; 1 without "
           "a scale; several, one option each", aliases=("--lora",), repeats=True),
    Option("--embedding=WORD=FILE", "a learned token and its file (textual inversion), such as "
           "'<toy>=learned_embeds.safetensors'; several, one each", aliases=("--textual-inversion",), repeats=True),
    Option("--condition=NAME=FILE", "an image for models that take some, such as source=cat.png for one that edits: "
           "one for all prompts, or one for each", repeats=True),
    Option("--frames=N", "of models that generate video", setting="sample.clip.frames"),
    Option("--rate=FPS", "frames a second of the video file", setting="sample.clip.rate"),
    Option("--out=FOLDER", "where the images go; without it a new folder in samples/"),
    Option("--numbered", "names images 000000000.png and so on, after those that exist"),
    REPLACE,
)
_CONVERT = (
    _DTYPE,
    Option("--ema=use", "averaged weights in a single file: ignore them, use them as the denoiser, or keep both",
           choices=("ignore", "use", "keep")),
    Option("--prediction=v", "epsilon or v, for files that do not record it", choices=("epsilon", "v")),
    Option("--config=FOLDER", "configurations of a single file of unusual size"),
    Option("--part=denoiser_2", "which of Wan 2.2 A14B's two denoisers a single file contains, or shall contain",
           choices=("denoiser", "denoiser_2")),
    Option("--task=edit", "whether a file of FLUX.1 is Kontext, which edits, or dev", choices=("text", "edit")),
    _BASE, _LAYOUT, REPLACE,
)
_MERGE = (
    Option("--weights=A,B", "weighted sum of the models, one weight for each"),
    _DTYPE,
    Option("--ema=use", "take the averaged weights of later files", choices=("ignore", "use")),
    Option("--config=FOLDER", "configurations of a first file of unusual size"),
    Option("--report=FILE.json", "write down where every tensor came from"),
    _BASE, _LAYOUT, REPLACE,
)
_RANK = (
    Option("--rank=N", "of the new adapter, the most that a layer gets"),
    Option("--share=S", "the smallest rank for each layer that leaves out at most this share of its change, such as "
           "0.1"),
    Option("--sv-ratio=R", "the smallest rank for each layer that keeps singular values of at least the largest / R, "
           "such as 20"),
    Option("--sv-cumulative=S", "the smallest rank for each layer that reaches this share of the sum of singular "
           "values"),
    Option("--convolutions=N", "the most that convolutions of 3x3 get; --rank without it"),
    Option("--dtype=fp16", "fp32, fp16 or bf16", choices=_TYPES),
    _LAYOUT,
    Option("--config=FOLDER", "configurations of a model's single file of unusual size"),
    REPLACE,
)
_QUEUE = (
    Option("--queue=FOLDER", "the folder of the queue; queue/ in the current folder without it"),
    Option("--devices=0,1", "of run: GPUs that train one recipe each at a time, or cpu; without it every GPU"),
    Option("--wait", "of run: wait for new recipes when none is left, until it is stopped"),
    Option("--json", "of list: one JSON document instead of the text"),
    AS, ALLOW, REPLACE,
)
_CAPTION = (
    Option("--with='COMMAND {image}'", "a command that prints the caption of the image; it is run once for each, "
           "without a shell"),
    Option("--model=FOLDER", "a vision-language model on this disk, through transformers"),
    Option("--prompt=TEXT", "with --model, what it is asked; without it, to describe the image"),
    Option("--timeout=SECONDS", "with --with, the longest time for an image; 120 without it"),
    Option("--again", "also images that have a caption; not those whose caption waits for review"),
)
_BOARD = (
    Option("--port=N", "port to listen on; a free one without it"),
    Option("--host=ADDRESS", "listen on another address than 127.0.0.1; needs a password"),
    Option("--password-file=FILE", "a file with the password; without it the terminal asks for one"),
    Option("--allow-host=NAME", "a name of this machine that browsers may use; several, one each", repeats=True),
    Option("--data", "show data of runs even where it is outside of the folders"),
    Option("--read-only", "without actions"),
)
_IMAGE = "sample.image={}, and sample.strength=0.75 for how much of it is generated again"
_INSTEAD_OF_SAMPLE = {
    "--width": "--size={}xHEIGHT, or --size={} for a square", "--height": "--size=WIDTHx{}, or --size={} for a square",
    "--image": _IMAGE, "--init-image": _IMAGE, "--init-img": _IMAGE, "--img": _IMAGE,
    "--strength": "sample.strength={}", "--denoise": "sample.strength={}",
    "--denoising-strength": "sample.strength={}", "--refiner": "sample.refiner.path={}",
    "--precision": "run.precision={}", "--device": "run.device={}", "--clip-skip": "model.clip_skip={}",
    "--vae": "model.vae={}",
}
_INSTEAD_OF_LAST = dict.fromkeys(("--out", "--output", "--to", "-o"), "{} as the last name, without an option")
"""For commands whose last name is the destination."""

_OF_DIFFUSERS = "--pretrained_model_name_or_path=sd-v1-5 --train_data_dir=photos"

COMMANDS: tuple[Command, ...] = (
    Command("train", "train a model, or resume a run", "RECIPE [key=value …]", {
        "mezzotint train recipe.yaml": "starts the run, or resumes it from its newest checkpoint",
        "mezzotint train recipe.yaml optim.lr=1e-6 run.name=slow": "the same recipe with two settings changed",
        "torchrun --nproc-per-node 2 -m mezzotint train recipe.yaml": "on two devices, with the same random draws",
    }, options=(REPLACE,), reads_recipe=True),
    Command("cache", "encode images, videos and captions once, ahead of the training", "RECIPE [key=value …]", {
        "mezzotint cache recipe.yaml data.cache.latents=true": "encodes what is not in the cache yet",
        "mezzotint cache recipe.yaml data.cache.text=true": "encodes the captions",
        "mezzotint cache recipe.yaml data.cache.path=/disk/cache": "keeps the cache in another folder",
    }, reads_recipe=True),
    Command("check", "read everything, train nothing: recipe, files, batches, memory", "RECIPE [key=value …]", {
        "mezzotint check recipe.yaml": "describes what the run would do, and whether it fits",
        "mezzotint check recipe.yaml data.resolution=768": "the same at another size",
        "mezzotint check recipe.yaml --fit=12GB --host=32GB --out=small.yaml":
            "writes the cheapest recipe that fits on such a machine",
    }, options=_CHECK, reads_recipe=True),
    Command("doctor", "inspect every image and caption of a data set, or this machine", "[DATA|RECIPE [key=value …]]", {
        "mezzotint doctor photos/": "duplicates, captions, shapes, unused files; what to do about each",
        "mezzotint doctor recipe.yaml --json": "the data as this recipe uses them, for programs",
        "mezzotint doctor": "versions, devices, disk, and known incompatibilities",
    }, options=_DOCTOR),
    Command("caption", "write captions with a command or a model, to be reviewed", "FOLDER [data.…=value …]", {
        "mezzotint caption photos --with='my-captioner {image}'": "images without a caption; run again, it goes on",
        "mezzotint caption photos --model=models/qwen-vl --prompt='Describe the photo in one sentence.'":
            "with a local model",
        "mezzotint caption photos --with='tagger --top 20 {image}' data.format=metadata --again":
            "into metadata.jsonl, also where there are captions",
    }, options=_CAPTION, names=(1, MANY)),
    Command("translate", "print the recipe for the command line of another trainer, or the other way round",
            "--as NAME [--processes=N] -- THE LINE AS IT IS, or RECIPE [key=value …] --to=NAME", {
        f"mezzotint translate --as diffusers-sd -- {_OF_DIFFUSERS}":
            "the recipe, and a note for each flag that is not simply carried over",
        f"mezzotint translate --as diffusers-sd -- python train_text_to_image.py {_OF_DIFFUSERS} > recipe.yaml":
            "keeps it as a recipe; the launcher may stay",
        "mezzotint translate style data.path=photos --to=ai-toolkit --out=style.yaml":
            "a recipe as that trainer's file, and a note for each setting that it lacks",
    }, options=_TRANSLATE),
    Command("bench", "measure how fast a recipe trains here, and what it costs", "RECIPE [key=value …]", {
        "mezzotint bench recipe.yaml": "images a second, memory, MFU; a plot of loss and step time",
        "mezzotint bench recipe.yaml --steps=30 --fast": "adds a row with everything that is faster",
        "mezzotint bench recipe.yaml --stand-in=833": "on synthetic images instead of the recipe's",
    }, options=_BENCH, reads_recipe=True),
    Command("queue", "train a folder of recipes one after the other, on each device one at a time",
            "add RECIPE [key=value …] | list | run | pause NAME | resume NAME | move NAME PLACE | remove NAME", {
        "mezzotint queue add recipe.yaml optim.lr=1e-5 run.name=slow": "takes what `train` takes; checked now, not run",
        "mezzotint queue run --devices=0,1": "trains what waits; started again, it resumes what ran",
        "mezzotint queue move slow first": "trains it next; pause and remove take its name, too",
    }, options=_QUEUE, names=(1, MANY)),
    Command("prove", "show on this machine that a killed run resumes bit-exactly", "RECIPE [key=value …]", {
        "mezzotint prove recipe.yaml": "8 steps without a stop against 8 with a kill between, bit by bit",
        "mezzotint prove recipe.yaml run.deterministic=true": "on a GPU, with kernels that sum in a fixed order",
        "mezzotint prove recipe.yaml --processes=2": "with two processes on this machine, under ddp or fsdp",
    }, options=(Option("--processes=N", "with N processes on this machine"),), reads_recipe=True,
        package="tasks.proof"),
    Command("verify", "read the inputs of a run again, and name those that have changed", "RUN", {
        "mezzotint verify runs/mine": "recipe, checkpoints, weights and data against the run's manifest.json",
        "mezzotint verify runs/mine && mezzotint train runs/mine": "resumes only with unchanged inputs",
        "mezzotint verify .": "the run folder that is the current folder",
    }, names=(1, 1), package="tasks.proof"),
    Command("diff", "compare two runs, and name the first step that differs", "RUN RUN", {
        "mezzotint diff runs/a runs/b": "settings, data, weights, versions, the first step whose loss differs",
        "mezzotint diff runs/a runs/b --json": "the same for programs",
        "mezzotint diff runs/fox runs/fox-2": "a run and its fork",
    }, options=(Option("--json", "one JSON document instead of the page"),), names=(2, 2), package="tasks.proof"),
    Command("sample", "generate images or videos from a model, a run or a recipe",
            "MODEL|RUN|RECIPE [--prompt TEXT …] [key=value …]", {
        "mezzotint sample runs/mine --prompt='a red fox'": "from the run's newest checkpoint",
        "mezzotint sample model/ --adapter=fox.safetensors:0.8 --file=prompts.txt --seed=1,2": "a sheet of images",
        "mezzotint sample model/ --prompt='a red fox' sample.image=photo.png sample.strength=0.6":
            "starts from an image (img2img); a strength of 1 leaves little of it",
    }, options=_SAMPLE, has_tools=True, instead=_INSTEAD_OF_SAMPLE),
    Command("convert", "convert files of models and adapters: single file, folder, layout", "SOURCE DESTINATION", {
        "mezzotint convert model.safetensors model/": "a single file into a folder that diffusers opens",
        "mezzotint convert runs/run/exports/step-00001000 mine.safetensors --dtype=fp16": "a folder into one file",
        "mezzotint convert fox.safetensors ui.safetensors --base=sdxl --layout=kohya": "an adapter's tensor names",
    }, options=_CONVERT, instead=_INSTEAD_OF_LAST, has_tools=True, names=(2, 2), package="tasks.weights"),
    Command("merge", "put trained parts and adapters into their model, sum models, combine adapters",
            "MODEL FILE… DESTINATION", {
        "mezzotint merge sdxl.safetensors unet_1000.ckpt mine.safetensors": "a trained denoiser in its model",
        "mezzotint merge sdxl/ a.safetensors lora.safetensors:0.8 mine/": "left to right; an adapter at 0.8",
        "mezzotint merge a/ b/ half.safetensors --weights=0.5,0.5 --dtype=fp16": "a weighted sum of models",
    }, options=_MERGE, instead=_INSTEAD_OF_LAST, has_tools=True, names=(2, MANY), package="tasks.weights"),
    Command("extract", "make an adapter from the difference between two models", "BASE TUNED DESTINATION --rank=N", {
        "mezzotint extract sdxl.safetensors tuned.safetensors fox.safetensors --rank=32": "a LoRA of rank 32",
        "mezzotint extract sdxl/ tuned/ fox.safetensors --rank=64 --share=0.2": "a smaller rank where that is enough",
        "mezzotint extract sd15/ tuned/ a.safetensors --rank=8 --layout=diffusers --dtype=fp16": "for diffusers",
    }, options=_RANK, instead=_INSTEAD_OF_LAST, names=(3, 3), package="tasks.weights"),
    Command("resize", "change the rank of an adapter", "ADAPTER DESTINATION --base=MODEL --rank=N", {
        "mezzotint resize big.safetensors small.safetensors --base=sdxl --rank=8": "reports what is left out",
        "mezzotint resize big.safetensors small.safetensors --base=sdxl --rank=64 --share=0.1": "by share",
        "mezzotint resize lokr.safetensors lora.safetensors --base=sd1 --rank=16": "a LoKr as a LoRA",
    }, options=(_BASE, *_RANK), instead=_INSTEAD_OF_LAST, names=(2, 2), package="tasks.weights"),
    Command("check-adapter", "print which programs read an adapter file, how many of its layers, at what strength",
            "FILE [--base=MODEL]", {
        "mezzotint check-adapter fox.safetensors": "the model is recognised by the names in the file",
        "mezzotint check-adapter fox.safetensors --base=FLUX.1-dev": "every layer compared with a model's",
        "mezzotint check-adapter runs/fox/exports/step-00001000": "a run's export",
    }, options=(_BASE, Option("--config=FOLDER", "configurations of a model's single file of unusual size")),
        names=(1, 1), package="tasks.weights"),
    Command("explain", "explain a setting, a section or an error code", "PATH|CODE|WORDS|NAME OF ANOTHER TRAINER …", {
        "mezzotint explain optim.lr": "one setting: type, default, what a change does on resume",
        "mezzotint explain data.cache": "every setting of a section",
        "mezzotint explain E1007": "what an error code means and what to do",
    }, names=(1, MANY), flags_are_names=True),
    Command("schema", "print the JSON Schema of recipes, for editors", "", {
        "mezzotint schema": "prints it",
        "mezzotint schema > recipe.schema.json": "keeps it next to the recipes",
        "mezzotint schema > docs/recipe.schema.json": "anywhere else, for an editor's settings",
    }, names=(0, 0)),
    Command("ls", "list shipped recipes and models, families, formats, dialects, runtimes, …",
            "[recipes|models|families|formats|dialects|runtimes|optimizers|callbacks]", {
        "mezzotint ls": "everything that can be named in a recipe",
        "mezzotint ls recipes": "the shipped recipes",
        "mezzotint ls families formats": "the kinds of models, and of data",
    }),
    Command("cp", "copy a shipped recipe, to change it", "NAME [DESTINATION]", {
        "mezzotint cp tiny_cpu": "copies it to tiny_cpu.yaml in this folder",
        "mezzotint cp tiny_cpu mine.yaml": "copies it under another name",
        "mezzotint cp tiny_cpu recipes/": "copies it into a folder",
    }, options=(REPLACE,), names=(1, 2)),
    Command("migrate", "rename settings of a recipe that had other names in earlier commits", "RECIPE …", {
        "mezzotint migrate mine.yaml": "rewrites it in place and prints each change",
        "mezzotint migrate mine.yaml --dry-run": "only prints what would change",
        "mezzotint migrate a.yaml b.yaml": "several recipes",
    }, options=(Option("--dry-run", "print the changes and write nothing"),), names=(1, 100)),
    Command("completion", "print a script that completes commands, options and settings in a shell", "bash|zsh|fish", {
        "source <(mezzotint completion bash)": "in ~/.bashrc",
        "source <(mezzotint completion zsh)": "in ~/.zshrc, after compinit",
        "mezzotint completion fish | source": "in ~/.config/fish/config.fish",
    }, names=(1, 1)),
    Command("board", "look at data, runs and images in a browser", "[FOLDER …]", {
        "mezzotint board": "prints an address; shows the runs below this folder",
        "mezzotint board runs /data/runs --read-only": "the runs of two folders, without actions",
        "mezzotint board --port=8642": "on a fixed port, for an SSH tunnel: ssh -L 8642:127.0.0.1:8642",
    }, options=_BOARD, package="board"),
    Command("report", "write the page of a run or a data set as one HTML file", "RUN|DATA [--out=FILE.html]", {
        "mezzotint report runs/mine": "writes mine.html, a file to send, which needs no network",
        "mezzotint report photos --out=data.html": "a data set: samples, sizes, what is skipped and why",
        "mezzotint report runs/mine --out=reports/mine.html": "in another folder",
    }, options=(Option("--out=FILE.html", "destination; NAME.html in the current folder without it"), REPLACE),
        names=(1, 1), package="board"),
)
# fmt: on
