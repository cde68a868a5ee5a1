"""The flags of all scripts, a row for each: which scripts have it (see `Script.is_one_of`), its default, what it
decides here, and a word on it. Defaults that differ from script to script stand in their entries (`_scripts.py`).

A `mapped` row is all there is to a flag; what others (`row`) decide is worked out in `_steps.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mezzotint.compat.diffusers_scripts._scripts import Script
from mezzotint.compat.diffusers_scripts._sentences import SENTENCES
from mezzotint.compat.kit import timestep_bias
from mezzotint.compat.kit.dialect import FileTable, Row, ignored, mapped, refused, row

PRECISIONS = {"no": "fp32", "fp16": "fp16", "bf16": "bf16"}
BNB = "bnb:"
"""Before the keys of the file for bitsandbytes."""

_SOLVERS = {"DPMSolverMultistepScheduler": "dpm++", "DDPMScheduler": "ddpm"}
_V = {"v_prediction": "v"}
_LORA = {"model.adapter.kind": "lora", "model.adapter.init": "gaussian"}
_LLAMA = "meta-llama/Meta-Llama-3.1-8B-Instruct"
_OF_ANOTHER = "it is left over from another model's script, which reads Llama; Qwen-Image has none"
_IF = "it is for the upscaler of DeepFloyd IF, which is not supported; leave it out"
_TOKENS = "Stable Diffusion's text encoder reads 77 tokens without a mask; leave it out"
_SAME_ATTENTION = "torch's own attention, which is used, does the same work on every device"
_ALWAYS = "is on there whatever is written, since its parser takes every word for True"
_NO_ENCODER = "no text encoder is trained, there as here"
_AS_IT_IS = "it is settled here by the kind of bits alone"

_NEW = "flux2 qwen-image z-image"
"""Families whose scripts are newest, and share flags that older ones lack."""
_TABLE = "dreambooth-lora-sdxl flow"
"""Scripts of a subject that take a data set in the place of a folder."""


def _needs(condition: str) -> tuple[str, str]:
    return condition, f"without --{condition} it has no effect, there as here"


def _length(to: str) -> Row:
    return mapped("max_sequence_length", 512, to, "tokens of a caption that the large text encoder reads", least=2)


_PRIOR, _DATASET, _TEXT, _LOGIT, _MODE, _PRODIGY = map(_needs, (
    "with_prior_preservation", "dataset_name", "train_text_encoder", "weighting_scheme=logit_normal",
    "weighting_scheme=mode", "optimizer=prodigy",
))  # fmt: skip
_CONFIG = mapped(
    "dataset_config_name", str, "data.hub_config", "the named configuration of a hub data set", optional=True
)
_CACHE = mapped("cache_dir", str, "data.hub_cache", "the cache of hub data sets", optional=True)
_FILTER = mapped(
    "image_interpolation_mode", "lanczos", "data.resize", "the filter, of torchvision's names",
    choices=("nearest", "nearest_exact", "bilinear", "bicubic", "box", "hamming", "lanczos"),
    values={"nearest_exact": "nearest"},  # Pillow has one nearest neighbour
)  # fmt: skip
_SCHEME = row(
    "weighting_scheme", "none", "objective.flow.density objective.weighting objective.flow.grid objective.flow.shift",
    "how σ is drawn from the scheduler's table, and the weight of the loss",
    choices=("sigma_sqrt", "logit_normal", "mode", "cosmap", "none"),
)  # fmt: skip


FLAGS: tuple[tuple[str, Row], ...] = (
    # the model
    ("all", row("pretrained_model_name_or_path", str, "model.path",
        "a folder in diffusers' layout, or a hub id that lies in the local cache", required=True)),
    ("sdxl dreambooth-lora-sdxl", row("pretrained_vae_model_name_or_path", str, "model.vae",
        "another autoencoder, such as the one repaired for fp16: a folder, or a hub id in the local cache",
        optional=True)),
    ("lora-sdxl", row("pretrained_vae_model_name_or_path", str, "model.vae run.vae_dtype",
        "another autoencoder, such as the one repaired for fp16, in the type of the arithmetic", optional=True,
        fixed={"run.vae_dtype": "same"})),
    ("all", row("revision", str, "model.path", "of a hub id: OWNER/NAME@REVISION")),
    ("sd", refused("non_ema_revision", str, "trains another revision of the UNet than the rest comes from (deprecated "
        "in diffusers, too); put that UNet into the model's folder, and name the folder")),
    ("all", ignored("variant", str, "the plain files are read, and a variant where a component has only that")),
    ("textual-inversion dreambooth dreambooth-lora", refused("tokenizer_name", str,
        "another tokenizer than the model's; put it into the model's folder")),
    ("qwen-image", ignored("pretrained_tokenizer_4_name_or_path", _LLAMA, _OF_ANOTHER)),
    ("qwen-image", ignored("pretrained_text_encoder_4_name_or_path", _LLAMA, _OF_ANOTHER)),
    (_NEW, row("bnb_quantization_config_path", str, "run.frozen_dtype",
        "a JSON file for bitsandbytes: the frozen model in 4 or 8 bits, by the extra low-bit", optional=True)),
    ("flux2 z-image", refused("do_fp8_training", False, "products of eight-bit floats are not computed here; leave it "
        "out. run.frozen_dtype=int8 before the double dash saves as much memory")),

    # the token of textual inversion
    ("token", mapped("num_vectors", 1, "model.tokens.vectors", "tokens that the word stands for", above=0)),
    ("token", row("placeholder_token", str, "model.tokens.words data.captions.trigger", "the new word", required=True)),
    ("token", row("initializer_token", str, "model.tokens.words", "the word that it begins as", required=True)),
    ("token", row("learnable_property", "object", "data.captions.template data.captions.wildcards",
        "the sentences around the word, 27 for an object, 19 for a style", choices=tuple(SENTENCES))),

    # pictures and captions
    ("captions", row("dataset_name", str, "data.path data.format",
        "a folder, or a hub id in the local cache; wins over train_data_dir")),
    (_TABLE, row("dataset_name", str, "data.path data.format",
        "a folder, or a hub id in the local cache, instead of instance_data_dir")),
    ("captions", _CONFIG),
    (_TABLE, replace(_CONFIG, needs=_DATASET)),
    ("captions", row("train_data_dir", str, "data.path data.format", "pictures with metadata.jsonl, .csv or .parquet")),
    ("token", row("train_data_dir", str, "data.path data.format", "the folder of pictures", required=True)),
    ("dreambooth dreambooth-lora", row("instance_data_dir", str, "data.path data.format",
        "the folder of the subject's pictures", required=True)),
    (_TABLE, row("instance_data_dir", str, "data.path data.format", "the folder of the subject's pictures")),
    (_TABLE, replace(_CACHE, needs=_DATASET)),
    ("captions", mapped("image_column", "image", "data.columns.image", "the column of the picture")),
    (_TABLE, row("image_column", "image", "data.columns.image", "the column of the picture", needs=_DATASET)),
    ("captions", mapped("caption_column", "text", "data.columns.caption", "the column of the caption")),
    (_TABLE, row("caption_column", str, "data.columns.caption",
        "of dataset_name: captions instead of instance_prompt", needs=_DATASET)),
    ("captions", mapped("max_train_samples", int, "data.max_samples", "drawn by the seed", above=0)),
    ("captions", _CACHE),
    (_TABLE, row("repeats", 1, "data.repeats", "how often an epoch visits each picture of the subject", above=0)),
    ("token", row("repeats", 100, "data.repeats", "how often an epoch visits each picture", above=0)),
    ("subject", row("instance_prompt", str, "data.captions.trigger data.captions.template",
        "the caption of each of them", required=True)),

    # class pictures
    ("subject", row("class_data_dir", str, "data.prior.path", "the folder of class pictures", needs=_PRIOR)),
    ("subject", mapped("class_prompt", str, "data.prior.class_prompt",
        "the caption of each of them, and what missing ones are of", needs=_PRIOR)),
    ("subject", row("with_prior_preservation", False, "data.prior.balance data.batch_size",
        "as many class pictures as the subject's in each batch, beside them")),
    ("subject", mapped("prior_loss_weight", 1.0, "data.prior.weight", "of the class pictures' mean loss",
        least=0, needs=_PRIOR)),
    ("subject", mapped("num_class_images", 100, "data.prior.num_class_images",
        "missing ones are drawn by the model before training", above=0, needs=_PRIOR)),
    ("subject", row("sample_batch_size", 4, "sample.batch_size", "drawn at once", above=0)),
    ("unet+subject sd3 flux flux2 z-image", ignored("prior_generation_precision", str,
        "class pictures are drawn in the types in which the run computes", choices=("no", "fp32", "fp16", "bf16"))),

    # how pictures are cut, and what is encoded before the training
    ("all", row("resolution", 512, "data.resolution data.buckets.step",
        "the side of the square that every picture is cut to")),
    (_NEW, row("use_aspect_ratio_buckets", False, "data.buckets.shape data.buckets.sizes",
        "eleven shapes from 1:2 to 2:1 of about resolution² pixels")),
    (_NEW, row("aspect_ratio_buckets", str, "data.buckets.sizes", "h1,w1;h2,w2;… in their place")),
    ("captions subject", mapped("center_crop", False, "data.crop",
        "the middle; without it a place drawn at each visit", on="center", off="random")),
    ("token", mapped("center_crop", False, "data.crop",
        "the middle square; without it pictures are squeezed into a square", on="center", off="stretch")),
    (f"captions {_TABLE}", mapped("random_flip", False, "data.flip", "half of the visits are mirrored", on=0.5,
        off=0.0)),
    ("sd sdxl", replace(_FILTER, default="bilinear", since="head",
        about="the filter; 0.26.3 is always bilinear, head's default is lanczos")),
    ("unet+adapter dreambooth-flux", _FILTER),
    ("flow+adapter", row("cache_latents", False, "data.cache.latents data.cache.crops objective.posterior",
        "pictures are encoded once, and the autoencoder is let go")),
    ("sdxl", mapped("proportion_empty_prompts", 0.0, "data.captions.dropout",
        "the chance that a caption is replaced by the empty one", least=0, most=1)),
    ("flux2 qwen-image", mapped("caption_dropout", 0.0, "data.captions.dropout",
        "the chance that a caption of the subject is left out at a visit; never of a class picture", least=0,
        most=1)),
    ("sd3", _length("model.sd3.t5_tokens")),
    ("flux", _length("model.flux.t5_tokens")),
    ("flux2", _length("model.flux2.text_tokens")),
    ("qwen-image", _length("model.qwen_image.text_tokens")),
    ("z-image", _length("model.z_image.text_tokens")),
    ("flux2", row("text_encoder_out_layers", (10.0, 20.0, 30.0), "model.flux2.text_layers",
        "whose states are the text; without it 9, 18 and 27, which the model's pipeline reads")),

    # batches, and the length of the run
    ("all", mapped("train_batch_size", 16, "data.batch_size",
        "per process there; multiplied by the number of processes once", above=0, unit="processes")),
    ("all", mapped("dataloader_num_workers", 0, "data.workers", "processes that decode pictures")),
    ("all", row("num_train_epochs", 100, "run.epochs", "counts when max_train_steps is absent", above=0)),
    ("all", row("max_train_steps", int, "run.steps", "optimizer steps", above=0)),
    ("all", mapped("gradient_accumulation_steps", 1, "optim.accumulation", "batches of one step", above=0)),
    ("all", mapped("gradient_checkpointing", False, "run.gradient_checkpointing.enabled", "of the UNet")),

    # the update
    ("all", row("learning_rate", 1e-4, "optim.lr", "the peak")),
    ("all", row("scale_lr", False, "optim.lr", "the rate times batch, accumulation and processes")),
    ("all", row("lr_scheduler", "constant",
        "optim.schedule.kind optim.schedule.floor optim.schedule.cycles optim.schedule.power",
        "constant has no warm-up there; restarts are one cycle; polynomial ends at 1e-7",
        choices=("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup",
                 "piecewise_constant"))),
    ("all", row("lr_warmup_steps", 500, "optim.schedule.warmup_steps", "optimizer steps", least=0)),
    ("subject token", mapped("lr_num_cycles", 1, "optim.schedule.cycles", "of cosine_with_restarts", above=0)),
    ("subject", mapped("lr_power", 1.0, "optim.schedule.power", "of polynomial", above=0)),
    ("captions unet+subject textual-inversion-sdxl", mapped("use_8bit_adam", False, "optim.optimizer.kind",
        "needs the extra eight-bit", on="adamw-8bit", off="adamw")),
    ("flow", mapped("use_8bit_adam", False, "optim.optimizer.kind",
        "on a GPU of CUDA, with the extra eight-bit; plain AdamW elsewhere; the start reports which",
        on="adamw-8bit-or-adamw", off="adamw")),
    ("all", row("adam_beta1", 0.9, "optim.optimizer.betas", "of the mean")),
    ("all", row("adam_beta2", 0.999, "optim.optimizer.betas", "of the square")),
    ("all", mapped("adam_weight_decay", 1e-2, "optim.optimizer.weight_decay", "on every parameter")),
    ("all", mapped("adam_epsilon", 1e-8, "optim.optimizer.eps", "added to the root")),
    ("captions subject", row("max_grad_norm", 1.0, "optim.clip.norm", "over all parameters")),
    ("sd sdxl", mapped("use_ema", False, "optim.ema.rule",
        "min(0.9999, (1 + s)/(10 + s)); the result is the average", on="ramp", off="none",
        fixed={"optim.ema.decay": 0.9999, "optim.ema.interval": 1})),
    ("sd", mapped("offload_ema", False, "optim.ema.device", "the average in main memory", on="cpu", off="same",
        since="head")),
    ("sd", ignored("foreach_ema", False, "the average rounds as without it", since="head")),
    (_TABLE, row("optimizer", "AdamW", "optim.optimizer.kind", "AdamW, or Prodigy, which needs the extra optimizers",
        choices=("AdamW", "adamw", "Prodigy", "prodigy"))),
    (_TABLE, row("prodigy_beta3", float, "optim.optimizer.d_beta", "with Prodigy", needs=_PRODIGY)),
    (_TABLE, ignored("prodigy_decouple", True, f"decoupled weight decay {_ALWAYS}")),
    (_TABLE, ignored("prodigy_use_bias_correction", True, f"it {_ALWAYS}")),
    (_TABLE, ignored("prodigy_safeguard_warmup", True, f"it {_ALWAYS}")),
    ("dreambooth-lora-sdxl sd3 flux", row("text_encoder_lr", 5e-6, "optim.part_lr",
        "of the text encoders; with Prodigy learning_rate counts", least=0, needs=_TEXT)),
    ("dreambooth-lora-sdxl sd3 flux", row("adam_weight_decay_text_encoder", 1e-3, "optim.part_optimizer",
        "of the text encoders", least=0, needs=_TEXT)),
    ("flux2 z-image", ignored("text_encoder_lr", 5e-6, _NO_ENCODER)),
    ("flux2 z-image", ignored("adam_weight_decay_text_encoder", 1e-3, _NO_ENCODER)),

    # the objective
    ("dreambooth", mapped("offset_noise", False, "objective.noise_offset", "a constant a channel", on=0.1, off=0.0)),
    ("captions dreambooth dreambooth-lora-sdxl", mapped("snr_gamma", float, "objective.min_snr_gamma",
        "Min-SNR in the form of the prediction", fixed={"objective.min_snr_form": "prediction"})),
    ("captions", mapped("noise_offset", 0.0, "objective.noise_offset", "a constant a channel")),
    ("sd", mapped("input_perturbation", 0.0, "objective.input_perturbation",
        "more noise in what the model sees, not in its target", optional=True)),
    *(("sdxl", one) for one in timestep_bias.ROWS),
    ("sd captions+adapter", mapped("prediction_type", str, "model.prediction", "none takes the scheduler file's",
        choices=("epsilon", "v_prediction"), values=_V)),
    ("sdxl", mapped("prediction_type", str, "model.prediction", "none takes the scheduler file's",
        choices=("epsilon", "v_prediction", "sample"), values=_V)),
    ("sd", refused("dream_training", False, "DREAM (a second prediction in every step) is not supported; leave it out",
        since="head")),
    ("sd", ignored("dream_detail_preservation", 1.0, "only DREAM reads it, which is not switched on", since="head")),
    ("sd3", replace(_SCHEME, default="logit_normal", choices=_SCHEME.choices[:-1])),
    (f"flux {_NEW}", _SCHEME),
    ("flow", row("logit_mean", 0.0, "objective.flow.mean",
        "of logit_normal; more is less noise there, so that its sign changes", needs=_LOGIT)),
    ("flow", mapped("logit_std", 1.0, "objective.flow.std", "of logit_normal", above=0, needs=_LOGIT)),
    ("flow", mapped("mode_scale", 1.29, "objective.flow.mode_scale", "of mode", needs=_MODE)),
    ("sd3", row("precondition_outputs", 1, "objective.flow.preconditioned", "the error is that of the clean latents")),
    ("flux", mapped("guidance_scale", 3.5, "model.flux.guidance", "the scale that dev is given while it is trained",
        least=0)),
    ("flux2 z-image", ignored("guidance_scale", 3.5, "this model is given no scale of guidance, there as here")),

    # what is trained
    ("unet+adapter", mapped("rank", 4, "model.adapter.rank",
        "LoRA of the attention's projections; alpha is the rank, so that the change is not scaled", above=0,
        fixed={**_LORA, "model.adapter.targets": ["attention"]})),
    ("flow+adapter", mapped("rank", 4, "model.adapter.rank", "LoRA of the layers of lora_layers", above=0,
        fixed=_LORA)),
    ("flux+adapter flux2 qwen-image z-image", row("lora_alpha", 4, "model.adapter.alpha",
        "the change is multiplied by alpha / rank", above=0)),
    ("subject+adapter", mapped("lora_dropout", 0.0, "model.adapter.dropout",
        "of the adapter's input, at addresses of its own")),
    ("flow+adapter", row("lora_layers", str, "model.adapter.targets",
        "layers by the ends of their names, with commas between")),
    ("dreambooth-lora-sd3", row("lora_blocks", str, "model.adapter.targets",
        "numbers of the blocks whose layers get one, with commas")),
    ("dreambooth-lora-sdxl", row("use_dora", False, "model.adapter.kind", "DoRA instead of LoRA", on="dora",
        off="lora")),
    ("dreambooth dreambooth-lora", row("train_text_encoder", False, "model.train", "the text encoder is trained, too")),
    ("sd3 flux", row("train_text_encoder", False, "model.train data.cache.text",
        "CLIP's text encoders are trained, too")),
    ("lora-sdxl dreambooth-lora-sdxl", row("train_text_encoder", False, "model.train",
        "LoRA of both text encoders' attention, too")),
    ("dreambooth dreambooth-lora", mapped("pre_compute_text_embeddings", False, "data.cache.text",
        "captions are encoded once")),
    ("dreambooth dreambooth-lora", refused("tokenizer_max_length", int, _TOKENS)),
    ("dreambooth dreambooth-lora", refused("text_encoder_use_attention_mask", False, _TOKENS)),
    ("dreambooth-lora-sdxl", row("output_kohya_format", False, "run.export.adapter",
        "a file for A1111, Forge and ComfyUI besides", on="both", off="diffusers")),
    ("dreambooth-lora-sdxl", refused("do_edm_style_training", False, "it trains models that think in σ, such as "
        "Playground 2.5, on levels of their scheduler; write a recipe with model.prediction=edm")),
    ("flow+adapter", row("upcast_before_saving", False, "run.export.dtype",
        "the adapter's file in float32; without it, in the type of the arithmetic")),

    # the run, and where it lies
    (_NEW, row("offload", False, "data.cache.latents data.cache.crops",
        "pictures are encoded before the training as captions are, so that no encoder waits beside it")),
    ("flux2 z-image", ignored("fsdp_text_encoder", False,
        "captions are encoded before the training, by an encoder that is let go")),
    ("token", mapped("save_steps", 500, "run.export.every", "steps between files of the word, in exports/", above=0,
        unit="steps")),
    ("token", refused("save_as_full_pipeline", False, "the word's files are written, which load_textual_inversion lays "
        "over the model; the model itself would be copied as it is")),
    ("all", row("output_dir", str, "run.folder run.name run.export.folder",
        "the run folder; the finished pipeline lies in it, too")),
    ("all", row("seed", int, "run.seed sample.seed", "without one, 0: a run can be repeated", least=0)),
    ("all", row("mixed_precision", str, "run.precision run.frozen_dtype", "without it, what the launcher hands over",
        choices=tuple(PRECISIONS))),
    ("all", mapped("allow_tf32", False, "run.tf32", "matrix products of float32 on GPUs", optional=True)),
    ("unet", ignored("enable_xformers_memory_efficient_attention", False,
        "torch's own attention, which is used, does the same work")),
    ("sdxl", ignored("enable_npu_flash_attention", False, _SAME_ATTENTION, since="head")),
    ("all", mapped("checkpointing_steps", 500, "run.save.every", "optimizer steps", above=0, unit="steps")),
    ("all", mapped("checkpoints_total_limit", int, "run.save.keep", "without it all are kept", above=0)),
    ("all", row("resume_from_checkpoint", str, "run.resume",
        "latest goes on, or starts when there is none; without it a new run is insisted on")),
    ("all", ignored("local_rank", -1, "the launcher's variables tell the place of a process")),
    ("dreambooth dreambooth-lora", refused("validation_images", list, _IF)),
    ("dreambooth dreambooth-lora", refused("class_labels_conditioning", str, _IF)),
    ("dreambooth", ignored("set_grads_to_none", False, "gradients are always let go")),
    ("dreambooth", ignored("skip_save_text_encoder", False,
        "the finished folder is whole; what was not trained is copied")),
    ("lora-sdxl", ignored("enable_npu_flash_attention", False, _SAME_ATTENTION)),
    ("lora-sdxl", ignored("debug_loss", False,
        "it logs the batch's loss under each picture's name; metrics.jsonl has the step's")),
    ("flux flux2 z-image", ignored("enable_npu_flash_attention", False,
        "torch's own attention is used, on whatever device there is")),

    # previews and trackers
    ("sd", row("validation_prompts", list, "sample.prompts run.preview.every run.preview.weights",
        "one picture each, from the average when there is one")),
    ("sdxl captions+adapter", row("validation_prompt", str, "sample.prompts run.preview.every run.preview.weights",
        "drawn during the run, from the average when there is one")),
    ("subject token", row("validation_prompt", str, "sample.prompts run.preview.every", "drawn during the run")),
    ("sdxl captions+adapter subject token", row("num_validation_images", 4, "sample.prompts", "so many pictures of it",
        above=0)),
    ("token dreambooth", row("validation_steps", 100, "run.preview.every", "steps between previews", above=0)),
    ("dreambooth", mapped("validation_scheduler", "DPMSolverMultistepScheduler", "sample.solver",
        "the solver of previews", choices=tuple(_SOLVERS), values=_SOLVERS)),
    ("captions", row("validation_epochs", 1, "run.preview.every", "epochs between previews", above=0)),
    ("subject+adapter flow", row("validation_epochs", 50, "run.preview.every", "epochs between previews", above=0)),
    (_NEW, row("final_validation_prompt", str, "sample.prompts run.preview.every",
        "drawn before the first step and at the end, where there is no validation_prompt")),
    (_NEW, row("skip_final_inference", False, "sample.prompts run.preview.every",
        "final_validation_prompt is not drawn")),
    ("all", row("report_to", "tensorboard", "run.tensorboard run.wandb.mode", "metrics.jsonl is always written",
        choices=("tensorboard", "wandb", "comet_ml", "all"))),
    ("all", ignored("logging_dir", "logs", "the logs lie in logs/ of the run folder")),
    ("sd", row("tracker_project_name", "text2image-fine-tune", "run.wandb.project",
        "with wandb; the run's name in TensorBoard is its folder's",
        needs=("report_to=wandb", "the run's name in TensorBoard is its folder's"))),
    ("all", refused("push_to_hub", False, "a run uploads nothing: it would need your token and the network for hours; "
        "upload the finished folder with `hf upload`")),
    ("all", refused("hub_token", str,
        "everyone on the machine can read a token on a command line; remove it, and keep it in `hf auth login`")),
    ("all", ignored("hub_model_id", str, "nothing is uploaded")),
    ("textual-inversion", row("validation_epochs", int, "run.preview.every", "an old name: epochs between previews",
        above=0)),
    ("textual-inversion", ignored("no_safe_serialization", False,
        "files are safetensors, which every reader of .bin files takes")),
)  # fmt: skip
"""Which scripts have a flag, and its row."""

SETTINGS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("all", "resolution", {"data.buckets.shape": "square"}),
    ("token", "resolution", {"data.flip": 0.5, "data.resize": "bicubic"}),
    ("dreambooth dreambooth-lora", "center_crop", {"data.flip": 0.0}),
    ("dreambooth dreambooth-sd3 flow+adapter", "resolution", {"data.resize": "bilinear"}),
    ("sdxl", "", {"data.cache.latents": True, "data.cache.text": True}),
    ("sdxl", "center_crop random_flip", {"data.cache.crops": 1}),
    (_NEW, "train_batch_size", {"data.remainder": "drop"}),
    ("token", "placeholder_token", {"model.train": ["tokens"]}),
    ("adapter", "output_dir", {"run.export.adapter": "diffusers"}),
    ("captions", "lr_scheduler", {"optim.schedule.cycles": 1, "optim.schedule.power": 1.0}),
    ("token", "lr_scheduler", {"optim.schedule.power": 1.0}),
    ("textual-inversion", "adam_beta1", {"optim.optimizer.kind": "adamw"}),
    ("token", "output_dir", {"optim.clip.norm": None}),
    ("captions subject", "max_grad_norm", {"optim.clip.scope": "all"}),
    ("captions+adapter subject token", "output_dir", {"optim.ema.rule": "none"}),
    ("flow", "weighting_scheme", {"objective.flow.grid": "table", "objective.flow.shift": "table"}),
    ("flux2 z-image", "pretrained_model_name_or_path", {"objective.posterior": "mean"}),
    ("all", "mixed_precision", {"run.weight_dtype": "fp32"}),
    ("sdxl sd3 textual-inversion-sdxl", "mixed_precision", {"run.vae_dtype": "fp32"}),
    ("lora-sdxl dreambooth-lora-sdxl", "pretrained_vae_model_name_or_path", {"run.vae_dtype": "fp32"}),
)
"""What scripts do without a flag for it: which scripts, the flags that it is attributed to, and the settings."""

BNB_FILE = FileTable(
    flag="bnb_quantization_config_path",
    prefix=BNB,
    rows=(
        row("load_in_4bit", False, "run.frozen_dtype", "matrices in 4 bits"),
        row("load_in_8bit", False, "run.frozen_dtype", "matrices in 8 bits"),
        row("bnb_4bit_quant_type", "fp4", "run.frozen_dtype", "nf4 is taken for either", choices=("fp4", "nf4")),
        ignored("bnb_4bit_compute_dtype", str, "products are of the type of --mixed_precision, there as here"),
        ignored("bnb_4bit_use_double_quant", False, "scales of blocks are kept as they are"),
        ignored("bnb_4bit_quant_storage", str, _AS_IT_IS),
        ignored("llm_int8_threshold", 6.0, _AS_IT_IS),
        ignored("llm_int8_skip_modules", list, _AS_IT_IS),
        ignored("llm_int8_enable_fp32_cpu_offload", False, _AS_IT_IS),
        ignored("llm_int8_has_fp16_weight", False, _AS_IT_IS),
        ignored("quant_method", str, "of bitsandbytes, there as here"),
    ),
)
"""Keys of the file that --bnb_quantization_config_path names."""


def flags_of(script: Script) -> tuple[Row, ...]:
    """The rows of a script's flags, with its own defaults."""
    rows = [one for selector, one in FLAGS if script.is_one_of(selector)]
    return tuple(replace(one, default=script.defaults.get(one.flag, one.default)) for one in rows)
