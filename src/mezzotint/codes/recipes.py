"""Codes E10.. and E11..: recipes and command lines."""

from __future__ import annotations

CODES: dict[str, str] = {
    "E1000": "The request could not be understood. The message says which part; `mezzotint --help` lists the verbs, "
    "`mezzotint explain PATH` every setting.",
    "E1001": "A key of the recipe is not a setting. Nothing is ignored in silence, since a mistyped key would train "
    "something else than was asked. The message proposes the setting that is nearest by name or by what its help text "
    "says; `mezzotint explain recipe` lists all of them.",
    "E1002": "A value is of the wrong type: a text where a number belongs, a list where one value belongs. Recipes "
    "are YAML 1.2: `yes`, `no`, `on` and `off` are texts, write true or false; a number in quotes is a text, too.",
    "E1003": "Settings contradict each other, or a value is not of the form that its setting reads. The message says "
    "what is needed; `mezzotint explain PATH` tells more.",
    "E1004": "The text is not YAML. Usual causes: a tab in the indentation, a colon or a quote within a text that is "
    "not quoted, lines that do not stand below each other. The line that is named is where reading failed; the cause "
    "may be the line above.",
    "E1005": "A key stands twice in one section. Other readers would take the last one in silence. Keep one of them.",
    "E1006": "The text is YAML, and uses something that recipes do without: tags (`!name`), merge keys (`<<`), "
    "aliases that multiply, more than 32 levels, a second document, another encoding than UTF-8, control characters, "
    "or more than 1 MB. Write the values out.",
    "E1007": "A value is of the right type and out of range, or not one of the words that a setting knows. The "
    "message names the range or the words, and the value that was met. A path is out of range when no file of this "
    "machine can have it: it holds a NUL character, is too long, names the home folder of an unknown user, or is not "
    "UTF-8 text.",
    "E1008": "An option could not be laid over the recipe. Options are written `key=value` without spaces, with the "
    "dotted path of a setting: `optim.lr=1e-6`, `sample.prompts.0='a fox'`, `sample.prompts+='a hare'`. Entries of a "
    "list count from 0.",
    "E1009": "The recipe holds what looks like an access token or a password. Recipes are copied into run folders and "
    "shared. Take it out, change it if the file has been anywhere else, and keep it in the environment or the login "
    "of the tool that needs it.",
    "E1010": "A name that stands for a file of the package is not known: a model family, a data format, a runtime. "
    "`mezzotint ls` lists those that are there.",
    "E1011": "There is no recipe of this name, or its file cannot be read. A recipe is given as a path or as the name "
    "of one that ships; `mezzotint ls recipes` lists those.",
    "E1012": "The command line could not be understood. `mezzotint --help` lists the verbs, `mezzotint VERB --help` "
    "shows what a verb takes with three examples.",
    "E1013": "`mezzotint explain` knows settings (`optim.lr`), sections (`optim`), the whole (`recipe`), error codes "
    "(`E1007`), and what kohya, diffusers, OneTrainer, SimpleTuner and EveryDream2 call their settings "
    "(`learning_rate`). What was asked for is none of them.",
    "E1014": "A file lies already where a verb would write what it was asked for: a copied recipe, a report, results. "
    "Nothing is written over unless `--replace` says so: give another name, or move away what is there.",
    "E1015": "`--as` reads the command line of another trainer. There is no dialect of the name that was given; "
    "`mezzotint ls dialects` lists them.",
    "E1016": "A word of the foreign command line is no flag of that trainer. Nothing is ignored in silence, also "
    "where the trainer itself would: a mistyped flag would train something else than was asked. The message proposes "
    "the nearest.",
    "E1017": "A flag of the foreign command line is missing, has no value, or one that it cannot take. The message "
    "says what it takes.",
    "E1018": "A flag of the foreign command line asks for something that cannot be done here. The message says why, "
    "and what to write instead. Flags that merely have no effect are notes and no errors.",
    "E1019": "The foreign command line begins with a launcher of several processes. One process cannot become many: "
    "type the torchrun line of the message, which starts them with `-m mezzotint train --as NAME -- …`. With "
    "`--processes=N` before the `--`, `translate` and `check` look ahead as if they ran.",
    "E1020": "No data was named. `data.path` is a folder of pictures, or a list of folders; `data.path=shapes` takes "
    "a few that ship with Mezzotint.",
    "E1021": "`model.train` names a part that this kind of model does not train. The message lists those it does.",
    "E1022": "A name pattern (`model.freeze`, `optim.optimizer.no_decay`) matches no parameter, so it would have no "
    "effect. Names are written `part/parameter`, such as `denoiser/down_blocks.0.resnets.0.conv1.weight`; * stands "
    "for any text. After `~` a pattern may match nothing.",
    "E1023": "After `model.train` and `model.freeze` no parameter is left that moves.",
    "E1024": "A part that is to be trained has dropout. Its draws would come from a stream and not from an address, "
    "and a resumed run would not be the same; set it to 0 in the part's config.json.",
    "E1025": "`model.last_layers` counts a text encoder's layers by the numbers in its parameters' names "
    "(`layers.11.…`), and this one has none. Name what stays as it is in `model.freeze`.",
    "E1051": "`objective.timesteps` reaches beyond the model's noise schedule, whose length its scheduler_config.json "
    "gives (num_train_timesteps). Write a range that ends there at most; [0, 1000] means all, however many there are.",
    "E1060": "`model.attention` names a kernel that this device, number type or build of torch does not have for this "
    "model. `auto` takes the best that there is.",
    "E1061": "`optim.optimizer` names a class that cannot be imported or is no torch.optim.Optimizer. Install the "
    "package that has it (8-bit AdamW comes with `mezzotint[eight-bit]`; Prodigy and D-Adaptation with "
    "`mezzotint[optimizers]`), or write the class's full dotted name. Instead of 8-bit AdamW `adamw` does the same "
    "with more memory; `adamw-8bit-or-adamw` takes the first on a GPU of CUDA and the other elsewhere.",
    "E1062": "`model.attention` is `xformers`, and that package is not installed. Each of its releases belongs to one "
    "release of torch: install the one that fits (`mezzotint[xformers]`), or write `auto`, with which torch's own "
    "kernels do the same work.",
    "E1063": "`run.wandb.mode` asks for Weights & Biases, and its package is not installed: `pip install "
    "'mezzotint[wandb]'`. TensorBoard's curves and metrics.jsonl need nothing.",
    "E1070": "The solver cannot draw from this model: it would begin at a timestep of pure noise and divide by the "
    "signal that is left there, or it knows no such prediction. The message names solvers that can.",
    "E1071": "A picture lies already where `mezzotint sample` would write. Nothing is ever written over: give another "
    "folder with --out.",
    "E1072": "Nothing to draw was named. Give a prompt (--prompt='a red fox'), a file with one a line "
    "(--file=prompts.txt), or sample.prompts in the recipe.",
    "E1073": "A prompt file cannot be read, or a line of it says something that is not known. In a text, options "
    "stand behind the prompt: --n negative prompt, --w width, --h height, --s steps, --d seed, --l guidance scale. In "
    "a `.json` file the message names the key. While a run goes it is a warning, and the prompts read before are "
    "drawn.",
    "E1074": "What was given to draw from is neither a model, nor a run folder, nor a recipe.",
    "E1075": "Averaged weights (EMA) were asked for, and there are none: the run was trained without optim.ema, or "
    "what is drawn from is a model and not a run. An export of the average is a model of its own, in exports/ under a "
    "name that ends in -ema or _ema.",
    "E1076": "`run.start` does not fit the run: it begins at or beyond its end, its optimizer's file is of another "
    "model or optimizer, or a file of moments is asked for where there are none that it could hold. The message says "
    "which.",
    "E1077": "Settings of the objective do not go together with what the denoiser predicts: kinds that are thought of "
    "in σ (edm, v-edm, epsilon-unscaled) have no timestep of pure noise, and ¼ ln σ is given to edm, v-edm and v "
    "alone. The message says which of the two, and what to write.",
    "E1078": "A rule in `no_decay` begins with @ and is not known, or this model has not the names that it goes by. "
    "`@norm-and-bias` works with every model, `@mindone` with those that MindONE's SDXL example knows.",
    "E1079": "`model.depth` names as many numbers as the denoiser has levels, each from 1 up to the transformer "
    "layers that its files have there: layers can be left out, not added.",
    "E1080": "A `target:` in another trainer's YAML names a class that the dialect does not know, or one that belongs "
    "elsewhere. Targets are read by a table and nothing is imported; the message names the line and the nearest class.",
    "E1081": "A `target:` or one of its params in another trainer's YAML asks for what cannot be done here. The "
    "message names the line, says why, and what to write instead.",
    "E1082": "Transforms of pictures in another trainer's YAML are read as settings of the placement: resize, cut to "
    "a size, mirror, scale to [-1, 1]. The message names the transform that does not come to that.",
    "E1083": "Several processes run, and the foreign line says that there is one (`--is_parallel False`). Write "
    "`--is_parallel True`, or start one process. Under mpirun over several servers also: MASTER_ADDR is not set, so "
    "that processes would not find each other.",
    "E1084": "A launch script of another trainer was given other arguments than it takes, or a rank table that does "
    "not fit them. It becomes one torchrun line for each server, so both have to tell the same servers and cards.",
    "E1090": "`sample.refiner.path` names a model that cannot go on with the latents of the first: they have another "
    "number of channels or stand for another number of pixels. SDXL's refiner goes with SDXL's base model.",
    "E1091": "`sample.image` names no picture that can be read. The message says why; any picture that the data set "
    "formats read can be begun with.",
    "E1092": "The run would export files that models of this family are not written as. `run.export.mindspore` is for "
    "SDXL; `run.export.parts: trained` for families whose models are passed around as single files.",
    "E1093": "`model.flux2.text_layers` names a layer that the folder's text encoder does not have. Leave it out: the "
    "model's own pipeline reads layers 9, 18 and 27.",
    "E1094": "`run.compile` has torch make code for each block, and its compiler has failed; the message has its first "
    "words. There may be no C++ compiler, the code may not fit this processor (fp16 on a CPU is tried least), or what "
    "an interrupted run left in the compiler's folder (TORCHINDUCTOR_CACHE_DIR, otherwise torchinductor_NAME in the "
    "folder of temporary files) may be damaged: empty that folder. Without run.compile results are the same up to "
    "rounding.",
    "E1110": "data.path names a folder into which Mezzotint has cached, and in which there are no pictures. The cache "
    "is found by what was encoded: data.path stays the folder of the pictures, and data.cache.path names the cache.",
    "E1150": "data.format=kohya found no folder of the kind that it reads. Directly in data.path lie folders whose "
    "names begin with a number of repeats, as in `10_sks dog`, and pictures directly in those.",
    "E1160": "A run keeps its files (lock, run.log, history.jsonl, metrics.jsonl) and folders (checkpoints, exports, "
    "samples, logs, requests) in its own folder, and something else is there: a link that leads out of the run folder, "
    "or a pipe, device or folder in the place of a file. What a link leads to belongs to somebody else and would be "
    "replaced or deleted, so nothing is read or written. Remove the link, or choose another run.name. If you link a "
    "folder on purpose, name its target: `run.linked_folders=[/big/exports]`, on the command line or in a recipe of "
    "your own. The recipe.yaml in a run folder cannot allow it, since whoever made the links may have written that "
    "file. `mezzotint report` and the page never show what is behind such links.",
    "E1161": "The recipe names an optimizer's class of a package that is not among those that Mezzotint imports for a "
    "recipe: torch, bitsandbytes and pytorch_optimizer. Importing a package runs it, so a recipe of a stranger's must "
    "not choose one: say its name yourself, on the command line, `--allow-package NAME`, where you trust it. A recipe "
    "cannot say it, and nothing is imported from the current folder.",
    "E1162": "A new run would write its recipe.yaml into a folder in which a recipe.yaml lies that no run has "
    "written, such as your own. Nothing is written over: choose another run.folder or run.name, or give the file "
    "another name.",
    "E1163": "A recipe or a line names a family, format, dialect, optimizer or callback that another installed "
    "package brings by an entry point, and importing its module fails. `mezzotint ls` shows which package it is. "
    "Update that package, or remove it; what Mezzotint itself has is not touched by it.",
}
