"""Codes E14..: models and weights. See `CODES` in `mezzotint.codes`."""

from __future__ import annotations

CODES: dict[str, str] = {
    "E1400": "The model's files cannot be used.",
    "E1401": "A model file or folder of the recipe does not exist.\n"
    "`model.path` is a folder in diffusers' layout, a single file, or the name of a model that ships with Mezzotint. "
    "Relative paths are looked up next to the recipe, then in the current folder.",
    "E1402": "A weights file cannot be read as safetensors.\n"
    "Usual causes: an empty or truncated download, a Git LFS pointer, a web page saved instead of the model, a pickle "
    "file with another extension. Download it again, or convert it.",
    "E1403": "Weights contain values that are not finite (NaN or infinity).\n"
    "A model with such a value only returns NaN. Use another copy, or an earlier checkpoint of the run that wrote it.",
    "E1404": "The index of a model in several files is damaged, or names files that are not next to it.\n"
    "Download the model's folder again, with all its shards.",
    "E1405": "The weights do not fit the model's configuration.\n"
    "Tensors are missing, unexpected, or of another shape: configuration and weights belong to different models, or "
    "the file contains something else, such as a LoRA.",
    "E1406": "The files belong to another kind of model than `model.family` or `model.vae` expects.\n"
    "`sd` reads Stable Diffusion 1.x and 2.x, `sdxl` SDXL's base model and refiner.",
    "E1407": "The model folder has configurations and no weights.",
    "E1408": "The weights exist only as pickle files (.bin, .ckpt, .pt).\n"
    "Opening one can run code. Most models are also published as safetensors; `mezzotint convert` reads pickle files "
    "in an isolated process.",
    "E1409": "A configuration, tokenizer or chat template in the model folder cannot be used.\n"
    "A chat template is a program; the one of a model folder is never run.",
    "E1410": "The destination of an export already exists.\n"
    "`--replace` replaces files, links and folders of models, nothing else.",
    "E1411": "A pickled model file (.ckpt, .pt, .bin) was refused.\n"
    "Such a file is a program. An isolated process reads only tensors from it, with limits on memory and time. Most "
    "models are published as safetensors, too.",
    "E1412": "The folder of run.export.folder holds a model that no run of Mezzotint wrote.",
    "E1413": "A Stable Diffusion 2 file does not specify its prediction.\n"
    "768-pixel models predict the velocity, 512-pixel base models the noise, with the same tensors. Neither the "
    "file's header (ModelSpec) nor a .yaml next to it specifies it.",
    "E1414": "No shipped configuration fits a single file's tensors, or `model.config` belongs to another model.\n"
    "`model.config` is a folder with the file's configurations, tokenizer and scheduler in diffusers' layout.",
    "E1415": "`model.ema_weights: use` needs averaged weights (`model_ema.*`) that the file does not have.\n"
    "Pruned files do not contain them.",
    "E1416": "A weight is too large for the requested type.\nfp16 ends at 65504; bf16 has the range of fp32.",
    "E1417": "`optim.ema.start` names a model whose tensors differ from the trained ones.\n"
    "A model that this recipe has exported fits.",
    "E1430": "The file contains no adapter.\n"
    "None of its tensors has the ending of a LoRA, DoRA, LoHa or LoKr (`lora_A.weight`, `lora_down.weight`, "
    "`hada_w1_a`, `lokr_w1`, …). A whole model is given as `model.path`.",
    "E1431": "The adapter belongs to another model.\nAdapters of SD 1, SD 2 and SDXL cannot be exchanged.",
    "E1432": "A layer of the adapter has another shape than the model's layer.\n"
    "Adapters of SD 1 and SD 2 have the same names and other widths (768 and 1024).",
    "E1433": "A layer of the adapter is incomplete or inconsistent, so the file is damaged.\n"
    "A tensor is missing or occurs twice, tensors belong to several adapter kinds or are integers, or the rank is 0. "
    "Save or download the file again.",
    "E1434": "The rank and alpha in the header of an adapter in diffusers' layout cannot be read.",
    "E1435": "The requested layout does not support this adapter.\n"
    "diffusers' layout supports LoRA and DoRA; LoHa, LoKr and convolutions in three factors need kohya's or "
    "ComfyUI's.",
    "E1436": "The adapters cannot be merged into one: only plain LoRA can be added without loss.",
    "E1437": "A pattern of `targets`, `rank_pattern` or `alpha_pattern` matches no layer of the trained parts.\n"
    "Layer names are those of the model's files.",
    "E1438": "Adapters need the package peft, which is not installed.",
    "E1439": "An adapter was requested for a layer that the network does not have.",
    "E1440": "The adapter to continue from does not fit the recipe, or cannot be trained.\n"
    "It has other layers, another rank or kind, is a DoRA of a LoHa or LoKr, or has convolutions in three factors. "
    "`mezzotint resize` converts any adapter to a plain LoRA.",
    "E1441": "An adapter file does not identify the model of its layer names.\n"
    "For SD 1, SD 2 and SDXL the name of a shipped model is enough (sd1, sd2, sdxl).",
    "E1442": "The base of an adapter must be a whole model.",
    "E1443": "A strength (`FILE:0.8`) was given for a file that is not an adapter.",
    "E1444": "`mezzotint extract` got two models with the same layers.\n"
    "A copy in another number type is the same model.",
    "E1445": "8-bit or 4-bit weights (run.frozen_dtype=int8 or nf4) need torchao, which is not installed.",
    "E1446": "`data.mask.source=files` reads masks from local disks, and the data set is on object storage.",
    "E1447": "The column `mask` of a table contains no masks.",
    "E1448": "An adapter of `model.under` cannot be used under a run, or is not the one that the run was trained with.",
    "E1449": "The model generates images with values that are not finite.\n"
    "In half precision the autoencoder may overflow (run.vae_dtype=fp32); otherwise weights are damaged.",
    "E1450": "The model's noise schedule cannot be used.\n"
    "Supported are linear, scaled_linear and squaredcos_cap_v2, and a list trained_betas in scheduler_config.json.",
    "E1451": "`mezzotint merge` got a file of another model: a tensor has another shape than the first model's.",
    "E1452": "`mezzotint merge` got inputs that cannot be merged this way.\n"
    "The first must be a whole model, followed by whole models or parts of the same kind.",
    "E1453": "Images of the subject or of its class (`data.prior`) are missing.\n"
    "The data report names files that were left out, and why.",
    "E1454": "`data.prior.balance=pairs` needs images of one size.",
    "E1455": "The file of a new class image was created by another process meanwhile.\nNothing was replaced.",
    "E1463": "The tokenizer of T5 cannot be used.\n"
    "Neither tokenizer.json nor spiece.model exists, one is damaged, or it has more tokens than the text encoder.",
    "E1464": "A size or clip length does not fit the model.\n"
    "Denoisers that divide latents into patches need sides that are multiples of a patch (often 16 pixels).",
    "E1465": "The denoiser's variance cannot be learned.\n"
    "The denoiser has no channels for it, or the schedule or prediction does not define its bounds: a schedule that "
    "ends in pure noise has no posterior variance at its last timestep.",
    "E1466": "The packages of the extra `video` are not installed.\n"
    "They are PyAV for clips, ftfy and Beautiful Soup for cleaned captions.",
    "E1467": "PyAV can write neither H.264 nor MPEG-4.\nThe wheels of `av` contain both.",
    "E1470": "A token of `model.tokens` is already a token of the model's tokenizer.\n"
    "Its row would be shared with every caption that contains it.",
    "E1471": "A file of `model.tokens.files` or --embedding contains no learned token.\n"
    "It has other tensors than one table of rows for each text encoder. For SDXL diffusers writes two files; give "
    "their folder.",
    "E1472": "A learned token belongs to another kind of model.\n"
    "Its rows are 768 wide for SD 1.x, 1024 for SD 2.x, 768 and 1280 together for SDXL.",
    "E1473": "This model family does not support learned tokens (`model.tokens`).\n"
    "It does not read captions with CLIP.",
    "E1474": "A token is to be trained, and no caption contains it.",
    "E1475": "`data.mask` requires masks, and no image has one.\n"
    "source=alpha needs transparency, source=files NAME-masklabel.png next to the image or a file with its name in "
    "`data.mask.path`.",
    "E1476": "A mask has another size than its image after the EXIF rotation.",
    "E1477": "A mask file cannot be read, or an image has two.\nWithout its mask an image would count in full.",
    "E1478": "A single file of a model or of one of its components cannot be used.\n"
    "Its tensors are not those of the model's configuration, it is quantized with separate scales (for inference "
    "only), or, for a flow-matching model (SD3, FLUX, Qwen-Image, Z-Image, Wan, LTX), no shipped configuration fits "
    "and `model.config` does not name a folder of them. The same holds for `model.vae` and `model.over`.",
    "E1479": "This flow-matching model cannot be written as one file.\n"
    "diffusers' conversion, which reads such files, would not restore its tensors (FLUX.1 in any width but 3072), or "
    "the model has two denoisers, each in a separate file (`--part`).",
    "E1480": "The model does not support first-frame conditioning (`sample.clip.first_frame`, "
    "`model.wan.first_frame_prob`).\n"
    "Of Wan 2.2 TI2V 5B does with a probability, and I2V models always.",
    "E1481": "The denoiser in `model.train` does not exist, or `objective.flow.sigmas` leaves it no noise level.\n"
    "For Wan 2.2 A14B `denoiser` is for σ from boundary_ratio (.875, I2V .9) on, `denoiser_2` for those below.",
    "E1485": "The processes of one run see different weights in the model folder (`run.runtime=fsdp`).",
}
