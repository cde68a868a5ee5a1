"""The stable codes of what can go wrong, each with the paragraph that `mezzotint explain CODE` prints."""

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
    "message names the range or the words, and the value that was met.",
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
    "in σ (edm, v-edm, epsilon-unscaled) have no timestep of pure noise, and ¼ ln σ is told to edm, v-edm and v "
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
    "E1110": "data.path names a folder into which Mezzotint has cached, and in which there are no pictures. The cache "
    "is found by what was encoded: data.path stays the folder of the pictures, and data.cache.path names the cache.",
    "E1150": "data.format=kohya found no folder of the kind that it reads. Directly in data.path lie folders whose "
    "names begin with a number of repeats, as in `10_sks dog`, and pictures directly in those.",
    "E1160": "Where a run keeps a file of its own (lock, run.log, history.jsonl, metrics.jsonl) lies a link, a pipe "
    "or a folder. A run writes into plain files of its own folder alone: what a link leads to is somebody else's, and "
    "would be emptied or added to. Remove what lies there if you know it, or choose another run.name. Folders may be "
    "links.",
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
    "E1200": "The data set cannot be used as it is. The message names the file and what to do with it.",
    "E1201": "A folder of data.path is not there, is a file, or cannot be read; or data.path is empty. Relative paths "
    "are looked up beside the recipe, then in the current folder.",
    "E1202": "The data set has no usable picture. The message says whether the folder is empty, holds other kinds of "
    "files, or holds pictures that cannot be read or were left out by the recipe.",
    "E1203": "Pictures have no caption. Put a text file of the same name beside each (picture.txt or picture.caption, "
    "UTF-8), take captions from file names with data.captions.source=filename, or decide with data.captions.missing "
    "what happens to pictures without one: skip leaves them out, empty trains them with the empty caption.",
    "E1204": "One picture has two caption files whose texts differ. Nobody can tell which is meant: remove one of "
    "them, or make them equal.",
    "E1205": "Too many files cannot be used. Up to 20, or the share data.max_skipped if that is more, are left out "
    "and reported; more than that is taken for a mistake in the data set. data_report.jsonl in the run folder, and "
    "the message, name files and reasons.",
    "E1206": "A picture cannot be used: it is not a regular file, of no known format, damaged, has more pixels than "
    "data.max_pixels, or has float pixels whose range nobody knows. The message has the reason.",
    "E1207": "The data set makes no batch. With data.remainder=drop every bucket needs at least data.batch_size "
    "pictures; data.remainder=short trains smaller batches, fill repeats pictures.",
    "E1208": "An epoch would have more than two thousand million visits. Lower data.repeats.",
    "E1209": "The processes of one run see different data: a picture, caption or number of repeats is not the same "
    "for all. Something was still writing into data.path while they started, or the machines hold different copies. "
    "Make them equal and start again.",
    "E1210": "data.format=metadata found no table to read, or two of which nobody can tell which is meant. It reads "
    "metadata.jsonl, metadata.csv or metadata.parquet in the folder or below it, one to a folder, with a column "
    "file_name; or, where there is none, .parquet and .arrow files that hold the pictures.",
    "E1211": "A table (metadata.jsonl, .csv, .parquet, or a .parquet or .arrow file with pictures) cannot be read as "
    "what its ending says. The message names the file, the line, and what was met: usual causes are a file that is "
    "not UTF-8, a JSON array instead of one object a line, a quote that is not closed, a Git LFS pointer.",
    "E1212": "A table has no column of the name that data.columns gives, has it twice, or it holds another type than "
    "pictures or texts. The message lists the columns that there are.",
    "E1213": "Rows of a table name files outside its own folder: by an absolute path, by `..`, or by a URL. A table "
    "that comes from elsewhere must not reach other files of this machine. Write names relative to the folder of the "
    "table, and put the pictures below it.",
    "E1214": "Parquet and arrow files, and data sets of the hub, are read by packages that are not installed. `pip "
    "install 'mezzotint[data]'` brings them.",
    "E1215": "A data set of the Hugging Face hub is not in the local cache and could not be fetched: there is no "
    "network, no such name, or it asks for a login. Fetch it where there is a network, or give a folder.",
    "E1216": "The data set has no part of the name data.split. Parts are told by names of files and folders; the "
    "message lists those that there are.",
    "E1217": "Files beside the pictures that say how they are trained (data.format=everydream: yaml and txt files, "
    "manifests) cannot be read as they are: broken YAML or JSON, an unknown key, a number out of range. The message "
    "names each with its line. Nothing is left out silently, because a folder's file holds for all its pictures.",
    "E1218": "Captions whose tags are shuffled and a text cache that keeps one order of each do not go together: "
    "every visit would see the same order. Set data.cache.shuffles to the number of orders that are drawn and kept, "
    "or encode captions at each visit with data.cache.text=false.",
    "E1219": "A way of drawing that models on straight paths (sd3, flux and their kin) do not know. They are drawn by "
    "euler, heun or unipc, at the levels of noise that their own pipeline visits; the message says what to leave out.",
    "E1220": "The model is told no scale of guidance, or was distilled so that it needs none. The message says which "
    "scale it is drawn or trained with.",
    "E1221": "The model was distilled to few steps, and training it as others are makes those few steps fall apart. "
    "Take the base model, or say in the recipe that the distilled one is meant; the message names the setting.",
    "E1222": "A model's folder is not one that the family reads: of another family, a variant that is not trained "
    "here, or without a part that it needs. The message names what was met, and what to write instead.",
    "E1230": "A clip cannot be used: it is not a regular file, of no known format, a playlist, sound alone, damaged "
    "or cut off, has more pixels in a frame than data.max_pixels, frames of different sizes, or it ends before a "
    "frame that is wanted. The message says which. Clips are decoded once when the data set is indexed, and told by "
    "their content, not by their name.",
    "E1231": "A list of clips cannot be read as one. Each line names a folder and an annotation file, or a folder, a "
    "folder of text embeddings and an annotation file, with commas between them. The message names file and line.",
    "E1232": "An annotation file cannot be read as one: it is a JSON list of objects with `path` (below the folder) "
    "and `cap` (the caption), and for clips, if they are not to be sampled anywhere, `frame_idx` (`start:end`). The "
    "message names file and entry.",
    "E1250": "A picture that could be read when the data set was indexed cannot be read any more: it was removed, "
    "replaced or cut short, or its disk has gone. The message names the file. Restore it, or start the same command "
    "again: the picture is left out then, and the data report says so.",
    "E1251": "A picture's content is not what the index says although its size and times are the same, so that it has "
    "another address in the cache. `touch` the file, or delete the data index, and start again: it is then read anew.",
    "E1280": "A tar shard (data.format=webdataset) cannot be read to its end: it is empty, compressed, damaged or was "
    "cut off while it was fetched. Shards are plain .tar files; fetch this one again, or take it away. What lies in "
    "it is read by its place, so that nothing behind the damage can be trusted.",
    "E1281": "data.path does not name tar shards: it is a command, or its braces are no range. Write data.path as "
    "their folder, one of them, or shards/{000..011}.tar, on a disk or on object storage (s3://bucket/shards).",
    "E1290": "Clips are read by a package that is not installed. Install it: pip install 'mezzotint[video]'.",
    "E1291": "The data set of pictures that are trained beside clips (data.clips.stills_path) has too few of them: "
    "each clip needs data.clips.stills different ones, and with stills_order=groups one more, since the last group is "
    "left out.",
    "E1292": "The data set has clips and the model trains pictures. Set model.family to one of clips, such as latte, "
    "or data.format to one of pictures.",
    "E1300": "The cache cannot be read or written. It holds nothing that cannot be made again: deleting it is always "
    "safe.",
    "E1301": "The cache folder cannot be written. Make it writable, or set data.cache.path to another folder. A cache "
    "that already holds everything can be read from a folder that cannot be written.",
    "E1303": "A cache entry that the run needs is missing or damaged (its checksum does not fit). It counts as absent "
    "from now on, in all processes. Start the same command again, which makes it anew before training goes on, or run "
    "`mezzotint cache RECIPE` first.",
    "E1304": "The encoder gave values that are not finite (NaN or infinity), or that are too large for the type they "
    "are stored in. Such rows are not cached. Try data.cache.dtype=fp32 and run.frozen_dtype=fp32 (the VAE of some "
    "models overflows in fp16), or leave the named pictures out.",
    "E1305": "A folder of the cache says that its entries have another shape than the model makes, although both name "
    "the same encoder. Its layout.json was changed or comes from elsewhere. Delete that folder; it is made again.",
    "E1306": "`mezzotint cache` was asked to fill the caches of a recipe that uses none. Add data.cache.latents=true "
    "to keep latents, data.cache.text=true to keep text embeddings, to the recipe or to the command.",
    "E1307": "What `mezzotint cache` would make depends on `run.seed`, by crops, flips or kept draws, and `run.seed` "
    "is -1: each new run draws its own. Give the number, or let `mezzotint train` fill the cache.",
    "E1310": "A file of text embeddings that Open-Sora-Plan made (.npz) cannot be used: it is not there, damaged, "
    "holds pickled objects or other arrays than text_emb and mask, or embeddings of another length or width than the "
    "model takes. `mezzotint cache` makes those that are not there, by model.text_encoder, of model.max_tokens tokens.",
    "E1370": "A file of a cache that MindONE made cannot be used: it is not there, damaged, pickled, of another "
    "shape, or its vector does not end in six sizes. Its latents, texts and vectors lie in latent_cache, "
    "crossattn_cache and vector_cache, under one name. Make the cache again, or train from the pictures.",
    "E1371": "What another trainer has encoded does not fit the recipe: latents of a size that no bucket has, or of "
    "another number of channels, or texts of another shape than the model's. The message lists the sizes that are "
    "there; take the model that the cache was made for.",
    "E1400": "The model's files cannot be used. The message names the file and what was found in it.",
    "E1401": "A model file or folder is not where the recipe says. `model.path` is a folder in diffusers' layout, a "
    "model in one file, or the name of a model that ships with Mezzotint; relative paths are looked up beside the "
    "recipe, then in the current folder.",
    "E1402": "A weights file cannot be read as safetensors. The message says what its first bytes suggest: an empty "
    "or truncated download, a Git LFS pointer, a web page that was saved instead of the model, a pickle file under "
    "another name. Fetch it again, or convert it.",
    "E1403": "Weights hold values that are not finite (NaN or infinity). A model with such a value can only give NaN. "
    "Take another copy, or an earlier save of the run that made it.",
    "E1404": "The index of a model in several files is damaged, names a file that is not there, or names something "
    "that does not lie beside it. Fetch the model's folder again, with all its shards.",
    "E1405": "The weights do not fit the model's configuration: tensors are missing, left over, or of another shape. "
    "Configuration and weights come from different models, or the file holds something else, such as a LoRA.",
    "E1406": "The files belong to another kind of model than the recipe's `model.family`. `sd` reads Stable Diffusion "
    "1.x and 2.x text-to-image models, `sdxl` SDXL's base model and its refiner, folders and single files; the "
    "message says what the files look like. The same for `model.vae`, which wants an autoencoder.",
    "E1407": "The folder has configurations and no weights. Give the path of a complete model, or write "
    "`model.weights: random` if you mean to train from nothing.",
    "E1408": "The weights are there as pickle files only (.bin, .ckpt, .pt). Opening one can run code, so Mezzotint "
    "reads safetensors. Most models are published in both forms; otherwise `mezzotint convert FOLDER NEW_FOLDER` "
    "reads them in a process that can do no harm.",
    "E1409": "A configuration in the model folder is missing, not JSON, or says something that no model of this "
    "family can have.",
    "E1410": "The place of an export is taken. Nothing is written over: remove what lies there, choose another name, "
    "or add `--replace`, which takes the place of files, links and folders of models.",
    "E1411": "A pickled model file (.ckpt, .pt, .bin) was not read. Such a file is a program; it is read in a process "
    "of its own that rebuilds tensors and nothing else, with bounds on memory and time. The message says what the "
    "file asked for, or how it is damaged. Nothing of it was run. Most models are published as safetensors, too.",
    "E1412": "The folder of run.export.folder already holds a model that no run of Mezzotint has put there. Nothing "
    "of others is written over: choose another folder, or move that model away.",
    "E1413": "Stable Diffusion 2 comes in two kinds with the same tensors: 768-pixel models predict the velocity, "
    "512-pixel base models the noise. This file does not say which it is: neither in its header (ModelSpec) nor in a "
    ".yaml beside it. Write model.prediction=v or model.prediction=epsilon.",
    "E1414": "A model in one file has the layout of Stable Diffusion, and none of the configurations that ship fits "
    "its size, or `model.config` names those of another model. `model.config` is a folder with the file's own "
    "configurations, tokenizer and scheduler in diffusers' layout.",
    "E1415": "`model.ema_weights: use` asks for the averaged copy of the denoiser (`model_ema.*`) in a single file, "
    "and this file has none: it was left out when the file was made smaller. The plain weights are there.",
    "E1416": "A weight is too large for the type that was asked for: fp16 ends at 65504. bf16 has the range of fp32.",
    "E1417": "`optim.ema.start` names a model whose weights have other names or shapes than those that are trained, "
    "so that no average of both can be made. Name a model of the same configuration, such as one that this recipe has "
    "exported.",
    "E1420": "A checkpoint of MindSpore's (.ckpt) is damaged, or holds what the format does not have. The message "
    "says at which byte: a file that was cut short, lengths or shapes that contradict each other, a name that comes "
    "twice, a checksum at its end that its content does not give. Nothing was loaded; fetch or save it again.",
    "E1430": "The file holds no adapter: none of its tensors has a name that LoRA, DoRA, LoHa or LoKr have in "
    "diffusers' or kohya's layout. A whole model is given as `model.path`.",
    "E1431": "The adapter belongs to another model: some of its tensors name layers that this one does not have. The "
    "message says what it looks like. Adapters of SD 1, SD 2 and SDXL cannot be exchanged.",
    "E1432": "A layer of the adapter has another shape than the model's. Adapters of SD 1 and SD 2 have the same names"
    " and other widths (768 and 1024).",
    "E1433": "A layer of the adapter lacks one of its tensors, has tensors of several kinds, or has rank 0. The copy "
    "is not whole.",
    "E1434": "An adapter in diffusers' layout says its rank and alpha in its header, and what it says cannot be read. "
    "Without them its strength would be a guess.",
    "E1435": "The layout that was asked for has no place for this adapter. diffusers' layout knows LoRA and DoRA; "
    "LoHa, LoKr and convolutions in three factors are written in kohya's.",
    "E1436": "The adapters cannot be made into one by adding. Only plain LoRA adds up without loss.",
    "E1437": "A pattern of `targets` fits no layer of the part. Paths are those of the model's files, with `*` for any"
    " part.",
    "E1438": 'Adapters are made of the package peft, which is not installed: `pip install "mezzotint[adapters]"`.',
    "E1439": "An adapter is asked for on a layer that the network does not have.",
    "E1440": "The adapter to go on from has other layers, another rank or another kind than the recipe asks for.",
    "E1441": "An adapter's file does not say where the dots of its layers' names are, and not which model it is for. "
    "`--base=MODEL` gives the model; the name of one that ships does for SD 1, SD 2 and SDXL (sd1, sd2, sdxl).",
    "E1442": "The base of an adapter is a whole model: a folder, a single file, or the name of a model that ships.",
    "E1443": "A strength stands behind a file that is no adapter. Adapters are laid into a model with a strength "
    "(`FILE:0.8`); parts of models take the place of others, and whole models are summed up by `--weights`.",
    "E1444": "`mezzotint extract` compares two models layer by layer, and these are the same. A copy in another type "
    "is the same model.",
    "E1445": "With run.frozen_dtype=int8 or nf4 matrices are kept in 8 or 4 bits by the package torchao, which is not "
    'installed: `pip install "mezzotint[low-bit]"`; or write run.frozen_dtype=same.',
    "E1450": "The model's noise schedule cannot be used: its scheduler_config.json asks for one that Mezzotint does "
    "not know, or for numbers that make no schedule. Known are linear, scaled_linear and squaredcos_cap_v2, and a "
    "list trained_betas of numbers above 0 and at most 1.",
    "E1451": "`mezzotint merge` was given a file with a tensor whose shape is not that of the first model's. They are "
    "of different models, such as SD 1 and SDXL, or the base model and its refiner.",
    "E1452": "`mezzotint merge` was given something that holds nothing of the first model, or a first model that is "
    "not whole. The first is the whole model; what follows are whole models or parts of its kind.",
    "E1453": "Class pictures (`data.prior`) stand beside those of a subject, and one of the two has no picture that "
    "can be used. The data report names files that were left out, and why.",
    "E1454": "With `data.prior.balance=pairs` a batch has equally many pictures of the subject and of its class, and "
    "all pictures of a batch have one size. `data.buckets.shape=square` makes one size of all of them.",
    "E1455": "A class picture was to be written (`data.prior.num_class_images`), and a file of its name has come in "
    "between. Nothing was replaced.",
    "E1460": "A LatteT2V in one file has tensors and no configuration, and its tensors do not tell how long the clips "
    "were that it was trained on. `model.config` is latte-17f, latte-65f or latte-221f, by frames of a clip, or a "
    "folder with a config.json; one that lies beside the file is taken without being named.",
    "E1461": "No autoencoder lies with a LatteT2V. Open-Sora-Plan v1.1.0 has it in the folder `vae`, beside those of "
    "the denoisers; `model.vae` names it wherever it lies.",
    "E1462": "No text encoder lies with a LatteT2V, and captions are to be encoded. It is T5 v1.1 XXL's encoder, "
    "which no release of LatteT2V repeats; `model.text_encoder` names its folder.",
    "E1463": "The tokenizer of T5 cannot be used: neither tokenizer.json nor spiece.model is there, one of them is "
    "damaged, or it has more tokens than the text encoder knows.",
    "E1464": "A size or a length does not suit the model: denoisers that take patches of latents need sides that are "
    "multiples of a patch (16 pixels for LatteT2V), and clips are drawn by models of clips alone.",
    "E1465": "The variance of a denoiser cannot be learnt as the recipe asks (`objective.variance`): the denoiser has "
    "no channels for it, or the schedule or the prediction leaves no rule for its bounds. A schedule that ends in "
    "pure noise has no way back from its last timestep.",
    "E1466": "Something is asked for that needs packages which are not installed: those of the extra `video`. `pip "
    "install mezzotint[video]` brings them: PyAV for clips, ftfy and Beautiful Soup for captions that are cleaned.",
    "E1467": "PyAV can write neither H.264 nor MPEG-4 here, so that no clip can be written. The wheels of `av` bring "
    "both; a build of one's own may have been made without encoders.",
    "E1470": "A new word of `model.tokens` is a token of the model's tokenizer already, so that its row would be "
    "shared with every caption that has the word. Choose one that is no word: angle brackets are usual.",
    "E1471": "A file of `model.tokens.files` or of --embedding holds no new word: it has other tensors than one table "
    "of rows for each text encoder, or is of a model with another number of them. Of SDXL diffusers writes two files, "
    "which are given as their folder.",
    "E1472": "The rows of a new word are of another width than the model's text encoders: it was learned for another "
    "kind of model. 768 is SD 1.x, 1024 SD 2.x, 768 and 1280 together SDXL.",
    "E1473": "`model.tokens` brings new words, and this family of models reads captions in another way than CLIP, with "
    "no table of words to add to. Families sd and sdxl take new words.",
    "E1474": "A new word of `model.tokens` is to be trained, and no caption of the data set has it, so that no picture "
    "would teach it. `data.captions.trigger` and `data.captions.template` put a word into captions.",
    "E1475": "`data.mask` asks for masks, and no picture has one: with `source=alpha` none is transparent anywhere, "
    "with `source=files` none has NAME-masklabel.png beside it, or a file of its name in `data.mask.path`.",
    "E1476": "A mask is not as large as its picture is shown, after its EXIF entry has turned it. A mask of another "
    "size could be stretched only by guessing where it belongs.",
    "E1477": "A mask file cannot be read, or a picture has two of them. Taken away, its picture counts whole.",
    "E1500": "The run folder or a checkpoint in it cannot be continued. Nothing was changed.",
    "E1501": "A file of the checkpoint is missing, has another size, or its SHA-256 is not the manifest's. Nothing "
    "was loaded from it. `run.resume=auto` takes the newest checkpoint that is whole.",
    "E1502": "The checkpoint holds other tensors than this run trains: another model, other trained parts, or with "
    "and without an average. Start a new run from the exported weights instead.",
    "E1504": "Another process is writing into this run folder. Two runs in one folder would destroy each other. When "
    "that process is dead the lock is free by itself.",
    "E1505": "`run.resume=never` insists on a new run, but the run folder holds checkpoints. Go on with them, or "
    "choose another `run.name`.",
    "E1506": "Every checkpoint in the run folder is damaged; the message says what is wrong with each. A run never "
    "starts from zero in such a folder by itself.",
    "E1507": "A checkpoint was asked for and is not there. The message lists those that are.",
    "E1510": "A setting differs from the one the checkpoint was made with, so that going on would be another run than "
    "the one that was begun. Put it back; or name it in `run.allow_change`, which the history then records: "
    "`run.allow_change=[optim.lr]`, or a whole section, `run.allow_change=[optim]`; or begin a new run beside it with "
    "`run.name=NAME`, which leaves this one as it is.",
    "E1511": "A setting differs from the one the checkpoint was made with, and nothing can go on across this change: "
    "another model, another seed, another target of training. Put it back; or begin a new run beside it with "
    "`run.name=NAME`; or one that starts from these weights, whose `model.path` is an export of this run.",
    "E1513": "The pictures, captions or repeats are not those that the checkpoint was trained on, so the run would "
    "not go on as it was. `run.allow_change=[data]` accepts that, and the history records it; `run.name=NAME` begins "
    "a new run beside it.",
    "E1514": "A frozen part (VAE, text encoder) has other weights than at the checkpoint. `run.allow_change=[model]` "
    "accepts that, and the history records it. Random weights also change with torch's version.",
    "E1515": "A folder has no manifest.json of a run that this version can read. It is written when a run starts, and "
    "says by hashes what the run is made of; runs that began with an earlier version get one when they go on.",
    "E1516": "`mezzotint verify` found something that is not what the run was made of: its recipe, a checkpoint, "
    "weights, or a sample, which the message names. What comes after it was not looked at.",
    "E1517": "`mezzotint prove` found that a run which is killed and gone on with does not end with the same bits as "
    "the run in one go, with this recipe on this machine. On a GPU `run.deterministic=true` takes kernels that add up "
    "in one order; on a CPU this is a bug.",
    "E1518": "`mezzotint prove` could not compare: one of its short runs failed with the error above it, or several "
    "processes were launched.",
    "E1600": "Training diverged: values that are not finite, or a part that was to be trained and does not move. The "
    "newest checkpoint was written before it happened.",
    "E1601": "A part was to be trained, but no gradient reaches it: it takes no part in the loss, or all that would "
    "is frozen.",
    "E1602": "A part was to be trained, but after three updates its weights are the same to the bit. Its learning "
    "rate is 0, or too small for the type of the weights.",
    "E1603": "Weights that are not finite are never saved or exported. The newest checkpoint was written before they "
    "came about.",
    "E1604": "Too many steps had a loss or gradient that was not finite. Each was skipped and named in "
    "bad_steps.jsonl with its samples and timesteps. Usual causes: a rate that is too high, fp16 where bf16 or fp32 "
    "is needed, a damaged picture.",
    "E1670": "`run.weight_dtype: alone` keeps no float32 masters, and sharded parameters always are their own "
    "masters, in float32. Take `same`, which computes in the smaller type as well.",
    "E1700": "The disk is full or cannot be written. Earlier checkpoints are untouched.",
    "E1701": "A file could not be written: the disk is full, the quota is used up, or the folder is read-only. Files "
    "are written aside and renamed when complete, so what was there before is untouched.",
    "E1702": "The place may not be written by this user, or the disk is mounted read-only.",
    "E1703": "The run folder's path is taken by a file, or no folder can be made there. A run needs a folder of its "
    "own: choose another run.folder or run.name.",
    "E1704": "The last checkpoint of the run could not be saved. Earlier ones are untouched; make room and start the "
    "same command again.",
    "E1705": "A log (metrics.jsonl, TensorBoard events, preview pictures) could not be written. Training goes on "
    "without it, and tries again in silence: what could not be written is missing there and nowhere else.",
    "E1708": "The disk of the cache is full. The message says how many bytes were needed and how many are free. Make "
    "room, or set data.cache.path to a folder on another disk. Entries that were finished are kept: the next start "
    "goes on from there.",
    "E1710": "Found by `mezzotint check`: two checkpoints do not fit on the disk of the run folder. The second is "
    "written beside the first, which goes only afterwards, so the run could save once and then never again.",
    "E1711": "Found by `mezzotint check`: what the cache lacks does not fit on its disk. data.cache.dtype=fp16 halves "
    "it, data.cache.content=sample halves the latents; data.cache.path takes it to another disk.",
    "E1720": "Before a run, every picture is looked at once, and what was found (size, content, caption) is kept in a "
    "folder below data.cache.path, so that the next start need not look again. That folder cannot be written: make "
    "room, change its rights, or set data.cache.path to another folder. The pictures are untouched.",
    "E1750": "The device ran out of memory. Lower run.micro_batch (the mathematics stays the same), switch on "
    "run.recompute, or take a smaller data.resolution.",
    "E1751": "The device's memory is full. `run.micro_batch` lowers what it holds at once without changing the "
    "mathematics; `run.recompute.enabled` trades time for memory; `mezzotint check` shows what needs how much.",
    "E1800": "Another process of this run is gone, so that the step could not be finished. Start the same command "
    "again: it goes on from the newest checkpoint.",
    "E1801": "Several processes were started for a runtime that has one. Under torchrun or accelerate, "
    "`run.runtime=auto` takes `ddp`.",
    "E1802": "A GPU was asked for and torch sees none: no driver, a torch without CUDA, or no device visible to this "
    "process.",
    "E1803": "A batch cannot be divided among more processes than it has samples.",
    "E1804": "Another process of this run died or hung, so that a step could not be finished. The message of that "
    "process says why; start the same command again, it goes on from the newest checkpoint.",
    "E1805": "`run.runtime=ddp` and `fsdp` need several processes, and a launcher that tells each its place: torchrun "
    "or accelerate launch. `run.runtime=auto` takes what the launch says.",
    "E1810": "A process that loads data has ended before its time: it was killed (often because the machine ran out "
    "of memory or of shared memory, /dev/shm) or it crashed while decoding. Start the same command again; it goes on "
    "from the newest checkpoint. With data.workers=0 nothing runs beside the training.",
    "E1820": "With data.verify=use and data.on_broken=weight-0 damaged pictures keep their places and count nothing. "
    "More of them than data.max_skipped allows, and more than 20, end the run. Each is named in run.log. Mend or "
    "remove them, or raise data.max_skipped.",
    "E1830": "`optim.in_backward` moves each weight as soon as its gradient is there, and several processes sum their "
    "gradients first. Start one process, or leave the setting out and share the weights (`run.runtime=fsdp`).",
    "E1831": "A picture turned out to be damaged when it was first decoded, since data.verify=use believed its header "
    "when the data set was indexed. The message names the file. Mend or remove it, set data.verify=start, which "
    "decodes every picture before the run and leaves damaged ones out, or data.on_broken=weight-0, which lets its "
    "place count nothing.",
    "E1840": "data.path or data.cache.path is an address of object storage, such as s3://bucket/shards, and the "
    "package that reads this kind of address is not installed. For s3: pip install 'mezzotint[object-storage]'. Others "
    "are those of fsspec: gcsfs for gs://, adlfs for az://.",
    "E1841": "Something on object storage cannot be read: it is not there, the credentials do not allow it, or the "
    "network failed five times within half a minute. Credentials are found where the library of the storage looks for "
    "them: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws, the role of the machine, fsspec's own settings; "
    "another server is named by AWS_ENDPOINT_URL. They never stand in a recipe or an address, which every run records.",
    "E1842": "This data.format opens files of this machine's disks. On object storage lie tar shards "
    "(data.format=webdataset) and tables with the pictures that they name or hold (data.format=metadata). Pack the "
    "data set as one of them, or mount the storage as a folder.",
    "E1843": "What lies on object storage has changed since the data set was indexed: the bytes of a sample are not "
    "those that the index knows. Nothing is trained on them. Start again, which lists the storage anew; the "
    "fingerprint of the data set will then be another, as after any change of pictures.",
    "E1844": "A cache on object storage could not be written, after five tries within half a minute, or because it is "
    "forbidden. What was made lies in ~/.cache/mezzotint/carried and is carried by the next start.",
    "E1845": "A row of a cache on object storage is not as it was written. The message names the shard: delete it and "
    "its index there, and the index on this machine; the next filling makes its rows again.",
    "E1860": "`mezzotint bench --against stock` measures the loop of diffusers' train_text_to_image.py beside a "
    "recipe, and the recipe asks for what that script does not do.",
    "E1861": "`mezzotint bench --gpu` looks at a GPU, and torch sees none.",
    "E1880": "Under `run.runtime=fsdp` the processes of a run are divided into groups of `run.shard.group`, each of "
    "which holds the model once. The number has to divide the number of processes; leave it out to share among all.",
    "E1881": "`run.whole_epochs` ends a run with the last whole epoch within `run.steps`, and there is room for none.",
    "E1900": "A signal stopped the run after it had saved. The line that was printed goes on from there.",
    "E1940": "The page of `mezzotint board` is made of Starlette, uvicorn and Jinja, which come with the extra "
    "`board`: `pip install 'mezzotint[board]'`. No other verb needs them.",
    "E1941": "`mezzotint board --host=ADDRESS` lets other machines reach the page, which shows files and starts runs. "
    "It then needs a password of at least eight signs: `--password-file=FILE`, or typed on a terminal. What goes over "
    "the network is not encrypted: an SSH tunnel to 127.0.0.1 is, and needs no password.",
    "E1942": "The page answers to names of this machine alone, and to requests of its own pages: a name that leads "
    "here from elsewhere, or another site's page, could otherwise act in your name. Behind a name of your own say "
    "`--allow-host=NAME`.",
    "E1943": "A folder that the page should look into is not there. Without one it looks into the current folder.",
    "E1944": "The page cannot listen there: the port is taken, or the address is not this machine's. Without `--port` "
    "a free port is taken.",
    "E1945": "The page was opened with `--read-only`, so that nothing is started, stopped or written from it. The "
    "command beside each action does the same in a terminal.",
    "E1946": "The run cannot do that as it stands: a run is asked to draw, save or stop while it trains, and goes on "
    "when it was stopped or killed. Its state is on its page.",
    "E1947": "A process that the page has started ended at once; the message has its last words. The command beside "
    "the action shows all of them in a terminal.",
    "E1948": "The page shows files below the folders it was given, and these data lie elsewhere. `mezzotint board "
    "--data` shows data of its runs wherever `data.path` says.",
    "E1970": "Near duplicates are told by perceptual hashes of the package ImageHash, which comes with the extras "
    "`doctor` and `board`: `pip install 'mezzotint[doctor]'`. Everything else of the doctor goes without.",
}
"""Every stable code with the paragraph that `mezzotint explain CODE` prints. A test holds this table against the
source."""
