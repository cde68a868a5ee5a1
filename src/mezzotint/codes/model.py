"""Codes E14..: models and weights."""

from __future__ import annotations

CODES: dict[str, str] = {
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
    "family can have. The same of a tokenizer that fails, and of a chat template that is not known: a template is a "
    "program, and the one of a model folder is never run.",
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
    "E1430": "The file holds no adapter: none of its tensors has the ending of a LoRA, DoRA, LoHa or LoKr "
    "(`lora_A.weight`, `lora_down.weight`, `hada_w1_a`, `lokr_w1`, …). A whole model is given as `model.path`.",
    "E1431": "The adapter belongs to another model: some of its tensors name layers that this one does not have. The "
    "message says what it looks like. Adapters of SD 1, SD 2 and SDXL cannot be exchanged.",
    "E1432": "A layer of the adapter has another shape than the model's. Adapters of SD 1 and SD 2 have the same names"
    " and other widths (768 and 1024).",
    "E1433": "A layer of the adapter lacks one of its tensors, has one twice, has tensors of several kinds or integer "
    "ones, or has rank 0. The copy is damaged.",
    "E1434": "An adapter in diffusers' layout says its rank and alpha in its header, and what it says cannot be read. "
    "Without them its strength would be a guess.",
    "E1435": "The layout that was asked for has no place for this adapter. diffusers' layout has LoRA and DoRA; "
    "LoHa, LoKr and convolutions in three factors are written in kohya's or ComfyUI's. kohya's layout has one matrix "
    "for query, key and value of FLUX, SD3 and Z-Image, for which LoHa and LoKr of the three cannot be joined.",
    "E1436": "The adapters cannot be made into one by adding. Only plain LoRA adds up without loss.",
    "E1437": "A pattern of `targets`, `rank_pattern` or `alpha_pattern` fits no layer of the parts that are trained. "
    "Paths are those of the model's files, with `*` for any part.",
    "E1438": 'Adapters are made of the package peft, which is not installed: `pip install "mezzotint[adapters]"`.',
    "E1439": "An adapter is asked for on a layer that the network does not have.",
    "E1440": "The adapter to continue from has other layers, another rank or another kind than the recipe asks for, "
    "or it cannot be trained: a DoRA of a LoHa or LoKr, a convolution in three factors, layers of several kinds. "
    "`mezzotint resize` makes a plain LoRA of any adapter, which can.",
    "E1441": "An adapter's file does not say where the dots of its layers' names are, and not which model it is for. "
    "`--base=MODEL` gives the model; the name of one that ships does for SD 1, SD 2 and SDXL (sd1, sd2, sdxl).",
    "E1442": "The base of an adapter is a whole model: a folder, a single file, or the name of a model that ships.",
    "E1443": "A strength stands behind a file that is no adapter. Adapters are laid into a model with a strength "
    "(`FILE:0.8`); parts of models take the place of others, and whole models are summed up by `--weights`.",
    "E1444": "`mezzotint extract` compares two models layer by layer, and these are the same. A copy in another type "
    "is the same model.",
    "E1445": "With run.frozen_dtype=int8 or nf4 matrices are kept in 8 or 4 bits by the package torchao, which is not "
    'installed: `pip install "mezzotint[low-bit]"`; or write run.frozen_dtype=same.',
    "E1446": "Masks (`data.mask.source=files`) are files of this machine's disks, and the data set lies on object "
    "storage. With `source=alpha` a picture brings its own, wherever it lies.",
    "E1447": "The column `mask` of a table holds no masks: neither pictures nor names of files.",
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
    "shared with every caption that has the word. Choose one that is no word, such as `<toy>`.",
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
    "E1478": "A file of the makers of a model on a straight path (SD3, FLUX.1, FLUX.2 Klein, Qwen-Image, Z-Image, Wan, "
    "LTX-Video) that cannot be read as such: it has no folder of the other parts (`model.config`), its tensors are not "
    "those of the configuration, or its numbers are kept in few bits with scales beside them, which is for drawing. "
    "The same of an autoencoder or a text encoder in a file of its own (`model.vae`, `model.over`).",
    "E1479": "A model on a straight path that is not written as one file: diffusers' conversion, by which such files "
    "are read, would not give its tensors back. FLUX.1 is one of these in any other width than 3072. Or a model "
    "of two denoisers, each of which is a file of its own: `--part` says which is written.",
    "E1480": "A first frame is given to a model that cannot go on from one (`sample.clip.first_frame`, "
    "`model.wan.first_frame`): of Wan only 2.2 TI2V 5B can, which is given the noise of each token. Or it is given "
    "to a picture, behind which nothing comes.",
    "E1481": "`model.train` names a denoiser that the model has not, or `objective.flow.sigmas` leaves none of the "
    "levels that the trained one is for: of Wan 2.2 A14B `denoiser` is for σ from boundary_ratio on (.875), "
    "`denoiser_2` for those below.",
    "E1485": "The processes of one run see different weights where the model lies (`run.runtime=fsdp`, of which each "
    "process reads its own rows): the same model is to lie on every machine.",
}
