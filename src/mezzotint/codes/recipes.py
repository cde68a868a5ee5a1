"""Codes E10.. and E11..: recipes and command lines. See `CODES` in `mezzotint.codes`."""

from __future__ import annotations

CODES: dict[str, str] = {
    "E1000": "The request could not be understood.\n"
    "`mezzotint --help` lists the commands, `mezzotint explain PATH` explains every setting.",
    "E1001": "A key of the recipe is not a setting.\n"
    "Unknown keys are never ignored, because a mistyped key would train something other than you intended. `mezzotint "
    "explain recipe` lists all settings.",
    "E1002": "A value has the wrong type.\n"
    "Recipes are YAML 1.2: `yes`, `no`, `on` and `off` are texts, write true or false. A number in quotes is a text, "
    "too.",
    "E1003": "Settings contradict each other, or a value does not have the form that its setting expects.",
    "E1004": "The text is not valid YAML.\n"
    "Usual causes: a tab in the indentation, a colon or a quote within an unquoted text, lines that are not aligned. "
    "The named line is where reading failed; the cause may be the line above.",
    "E1005": "A key occurs twice in one section.\nOther YAML readers silently take the last one.",
    "E1006": "The text is YAML but uses something that recipes do not allow.\n"
    "Not allowed are tags (`!name`), merge keys (`<<`), aliases that multiply, more than 32 levels, a second "
    "document, encodings other than UTF-8, control characters, and more than 1 MB.",
    "E1007": "A value is out of range, or not one of the choices of its setting.\n"
    "A path is out of range when no file of this machine can have it: it contains a NUL character, is too long, names "
    "the home folder of an unknown user, or is not UTF-8 text.",
    "E1008": "A `key=value` option could not be applied to the recipe.\n"
    "Write options without spaces, with the dotted path of a setting: `optim.lr=1e-6`, `sample.prompts.0='a fox'`, "
    "`sample.prompts+='a hare'`. List entries count from 0.",
    "E1009": "The recipe contains what looks like an access token or a password.\n"
    "Recipes are copied into run folders and shared. If the file has been anywhere else, change the secret; keep it "
    "in the environment or in the login of the tool that needs it.",
    "E1010": "A model family, data format or runtime is not known.\n`mezzotint ls` lists those that exist.",
    "E1011": "There is no recipe of this name, or its file cannot be read.\n"
    "`mezzotint ls recipes` lists those that ship.",
    "E1012": "The command line could not be understood.\n"
    "`mezzotint COMMAND --help` shows the arguments of a command, with examples.",
    "E1013": "`mezzotint explain` does not know this name.\n"
    "It knows settings (`optim.lr`), sections (`optim`), the whole (`recipe`), error codes (`E1007`), and what other "
    "trainers call their settings (`learning_rate`).",
    "E1014": "The output file of a command already exists.\nNothing is overwritten unless you add `--replace`.",
    "E1015": "`--as` names a trainer whose command lines Mezzotint does not read.\n`mezzotint ls dialects` lists them.",
    "E1020": "No data was named.\n`data.path=shapes` uses a few images that ship with Mezzotint.",
    "E1021": "`model.train` names a part that this kind of model does not train.",
    "E1022": "A name pattern (`model.freeze`, `optim.optimizer.no_decay`, `optim.part_lr`) matches no parameter.\n"
    "`*` matches any text. A pattern after `~` may match nothing.",
    "E1023": "`model.train`, `model.freeze` and rates of 0 in `optim.part_lr` leave no parameter to train.",
    "E1024": "A trained part has dropout.\n"
    "Its random draws would depend on what ran before, so that a resumed run would not be the same.",
    "E1025": "`model.last_layers` needs a text encoder whose parameter names number its layers (`layers.11.…`).",
    "E1051": "`objective.timesteps` exceeds the model's noise schedule.\n"
    "num_train_timesteps in its scheduler_config.json gives the length. [0, 1000] means all, however many there are.",
    "E1060": "`model.attention` names a kernel that this device, number type or torch build does not have.",
    "E1061": "`optim.optimizer` names a class that cannot be imported, or that is not a usable torch optimizer.\n"
    "8-bit AdamW comes with `mezzotint[eight-bit]`; Prodigy and D-Adaptation with `mezzotint[optimizers]`. `adamw` "
    "computes the same as 8-bit AdamW with more memory; `adamw-8bit-or-adamw` uses the first on a CUDA GPU and the "
    "other elsewhere.",
    "E1062": "`model.attention` is `xformers`, and that package is not installed.\n"
    "Each xformers release belongs to one torch release.",
    "E1063": "`run.wandb.mode` asks for Weights & Biases, and its package is not installed.\n"
    "TensorBoard and metrics.jsonl need no extra package.",
    "E1070": "The solver cannot sample from this model.\n"
    "It would start at a timestep of pure noise and divide by its zero signal, or it does not support the model's "
    "prediction.",
    "E1071": "The output image of `mezzotint sample` already exists.\nNothing is overwritten: give another --out.",
    "E1072": "No prompt was given.\n"
    "Give --prompt, --file=prompts.txt with one per line, or sample.prompts in the recipe.",
    "E1073": "A prompt file cannot be read, or a line of it is invalid.\n"
    "In a text file, options follow the prompt: --n negative prompt, --w width, --h height, --s steps, --d seed, --l "
    "guidance scale. While a run trains this is a warning, and the last valid prompts stay in use.",
    "E1074": "The source to sample from is not a model, a run folder or a recipe.",
    "E1075": "Averaged weights (EMA) were requested, and there are none.\n"
    "The run was trained without optim.ema, or the source is a model and not a run. An export of the average is a "
    "separate model in exports/ with a name that ends in -ema or _ema.",
    "E1076": "`run.start` does not fit the run.\n"
    "It starts at or after the run's end, its optimizer file belongs to another model or optimizer, or a file of "
    "moments is requested for an optimizer without moments.",
    "E1077": "Settings of the objective do not fit the denoiser's prediction.\n"
    "Predictions defined in σ (edm, v-edm, epsilon-unscaled) have no timestep of pure noise; only edm, v-edm and v "
    "can be given ¼ ln σ. The weighting `debiased` has formulas for predictions of epsilon and v.",
    "E1078": "A rule in `no_decay` starts with @ and is unknown, or does not apply to this model.\n"
    "`@norm-and-bias` works with every model; others may be for one model only.",
    "E1079": "`model.depth` does not fit the denoiser's levels.\nLayers can be removed, not added.",
    "E1083": "Several processes run, and the imported command line does not start several.\n"
    "Add that trainer's option for several processes, or start one process. Under mpirun over several servers "
    "MASTER_ADDR must be set.",
    "E1090": "The model of `sample.refiner.path` cannot continue from the first model's latents.\n"
    "SDXL's refiner goes with SDXL's base model.",
    "E1091": "`sample.image` cannot be read as an image, or cannot be used here.",
    "E1092": "The run would export files in a form that this model family does not support.\n"
    "A format other than safetensors (`run.export.file_format`) needs a layout of the family's models in it; "
    "`run.export.parts: trained` is for families that are shared as single files.",
    "E1093": "`model.flux2.text_layers` names a layer that the text encoder does not have.\n"
    "The model's own pipeline reads layers 9, 18 and 27 of Klein, 10, 20 and 30 of dev.",
    "E1094": "`run.compile`: torch's compiler failed.\n"
    "There may be no C++ compiler, the code may not fit this processor, or files that an interrupted run left in the "
    "compiler's folder (TORCHINDUCTOR_CACHE_DIR, otherwise torchinductor_NAME in the folder of temporary files) may "
    "be damaged: empty that folder. Without run.compile results are the same up to rounding.",
    "E1095": "A callback or loss function given to `mezzotint.train` cannot be used.",
    "E1096": "A Python object cannot be used as a data set.\n"
    "It must be a sequence of (image, caption). For caches, checkpoints and several processes it must also identify "
    "its samples: `key(index)` and `content_hash(index)`.",
    "E1110": "data.path names a cache folder, which holds no images.\n"
    "Caches are found by content: data.path stays the folder of the images.",
    "E1150": "data.format=kohya found no usable folder.\n"
    "Names of folders directly in data.path must start with a number of repeats (`10_sks dog`), with images directly "
    "in them.",
    "E1160": "A run's own file or folder is a link out of the run folder, or of the wrong kind.\n"
    "The target of a link may belong to somebody else and would be replaced or deleted, so nothing is read or "
    "written. The recipe.yaml in a run folder cannot allow links, because somebody else may have written that file, "
    "too. `mezzotint report` and the board never show the targets of such links.",
    "E1161": "The recipe names an optimizer class of a package that Mezzotint does not import for a recipe.\n"
    "Importing a package runs it, so a recipe from somebody else must not choose one. torch, bitsandbytes and "
    "pytorch_optimizer are allowed; allow another on the command line with `--allow-package NAME` if you trust it.",
    "E1162": "The folder of a new run contains a recipe.yaml that no run wrote.\nNothing is overwritten.",
    "E1163": "A plug-in package cannot be imported.\n"
    "`mezzotint ls` shows the package of each choice. Mezzotint's own choices are not affected.",
}
