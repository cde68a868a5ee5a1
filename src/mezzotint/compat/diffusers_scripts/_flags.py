"""The flags of all scripts, a row for each: which scripts have it (see `ExampleScript.is_one_of`), its default, the
settings that it decides, and a remark. Defaults that differ from script to script are in the scripts' entries
(`_scripts.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mezzotint.compat.diffusers_scripts._scripts import ExampleScript
from mezzotint.compat.kit import timestep_bias
from mezzotint.compat.kit.caption_templates import SENTENCES
from mezzotint.compat.kit.dialect import FileTable, Row, ignored, mapped, refused, row

PRECISIONS = {"no": "fp32", "fp16": "fp16", "bf16": "bf16"}
BNB = "bnb:"
"""Prefix of the keys of the bitsandbytes file."""

_SOLVERS = {"DPMSolverMultistepScheduler": "dpm++", "DDPMScheduler": "ddpm"}
_V = {"v_prediction": "v"}
_LORA = {"model.adapter.kind": "lora", "model.adapter.init": "gaussian"}
_LLAMA = "meta-llama/Meta-Llama-3.1-8B-Instruct"
_OF_ANOTHER = "it is left over from the script of another model, which has Llama; Qwen-Image does not"
_IF = "it is for the upscaler of DeepFloyd IF, which is not supported; leave it out"
_TOKENS = "Stable Diffusion's text encoder reads 77 tokens without a mask; leave it out"
_SAME_ATTENTION = "torch's attention, which is used, does the same on every device"
_CROP = "it tells the model about a crop that the images do not have; leave it out"
_ALWAYS = "is always on in the script, since its parser reads every word as True"
_NO_ENCODER = "no text encoder is trained, as in the script"
_AS_IT_IS = "in Mezzotint it only depends on the kind of quantization"

_NEW = "flux2 qwen-image z-image"
"""Families with the newest scripts, which share flags that older ones lack."""
_TABLE = "dreambooth-lora-sdxl flow"
"""DreamBooth scripts that accept a data set instead of a folder."""


def _needs(condition: str) -> tuple[str, str]:
    return condition, f"without --{condition} it has no effect, as in the script"


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
    "how σ is sampled from the scheduler's table, and the weight of the loss",
    choices=("sigma_sqrt", "logit_normal", "mode", "cosmap", "none"),
)  # fmt: skip


FLAGS: tuple[tuple[str, Row], ...] = (
    # the model
    ("all", row("pretrained_model_name_or_path", str, "model.path",
        "a folder in diffusers' layout, or a hub id in the local cache", required=True)),
    ("sdxl dreambooth-lora-sdxl", row("pretrained_vae_model_name_or_path", str, "model.vae",
        "another autoencoder, such as the one fixed for fp16: a folder, or a hub id in the local cache",
        optional=True)),
    ("lora-sdxl instruct-pix2pix-sdxl", row("pretrained_vae_model_name_or_path", str, "model.vae run.vae_dtype",
        "another autoencoder, such as the one fixed for fp16, in the compute dtype", optional=True,
        fixed={"run.vae_dtype": "same"})),
    ("instruct-pix2pix-sdxl", mapped("vae_precision", "fp32", "run.vae_dtype",
        "the type of the model's own autoencoder", choices=("fp32", "fp16", "bf16"))),
    ("all", row("revision", str, "model.path", "of a hub id: OWNER/NAME@REVISION")),
    ("instruct-pix2pix-sdxl", ignored("non_ema_revision", str, "in the script, too, the UNet is that of --revision")),
    ("sd instruct-pix2pix", refused("non_ema_revision", str, "trains a UNet of another revision than the rest of the "
        "model (deprecated in diffusers, too); put that UNet into a model folder, and give the folder")),
    ("all", ignored("variant", str, "plain files are read, or a variant if a component has only that")),
    ("textual-inversion dreambooth dreambooth-lora", refused("tokenizer_name", str,
        "uses another tokenizer than the model's; put it into the model's folder")),
    ("qwen-image", ignored("pretrained_tokenizer_4_name_or_path", _LLAMA, _OF_ANOTHER)),
    ("qwen-image", ignored("pretrained_text_encoder_4_name_or_path", _LLAMA, _OF_ANOTHER)),
    (_NEW, row("bnb_quantization_config_path", str, "run.frozen_dtype",
        "a file for bitsandbytes: quantizes the frozen model to 4 or 8 bits, with the extra low-bit", optional=True)),
    ("flux2 z-image", refused("do_fp8_training", False, "fp8 matrix products are not supported; leave it out. "
        "run.frozen_dtype=int8 before the double dash saves as much memory")),

    # the token of textual inversion
    ("token", mapped("num_vectors", 1, "model.tokens.vectors", "number of learned tokens", above=0)),
    ("token", row("placeholder_token", str, "model.tokens.words data.captions.trigger", "the learned token",
        required=True)),
    ("token", row("initializer_token", str, "model.tokens.words", "the word whose embedding it starts from",
        required=True)),
    ("token", row("learnable_property", "object", "data.captions.template data.captions.wildcards",
        "the captions with the token, 27 for an object, 19 for a style", choices=tuple(SENTENCES))),

    # images and captions
    ("captions edits", row("dataset_name", str, "data.path data.format",
        "a folder, or a hub id in the local cache; overrides train_data_dir")),
    (_TABLE, row("dataset_name", str, "data.path data.format",
        "a folder, or a hub id in the local cache, instead of instance_data_dir")),
    ("captions edits", _CONFIG),
    (_TABLE, replace(_CONFIG, needs=_DATASET)),
    ("captions edits", row("train_data_dir", str, "data.path data.format",
        "images with metadata.jsonl, .csv or .parquet")),
    ("token", row("train_data_dir", str, "data.path data.format", "the folder of images", required=True)),
    ("dreambooth dreambooth-lora", row("instance_data_dir", str, "data.path data.format",
        "the folder of the subject's images", required=True)),
    (_TABLE, row("instance_data_dir", str, "data.path data.format", "the folder of the subject's images")),
    (_TABLE, replace(_CACHE, needs=_DATASET)),
    ("captions", mapped("image_column", "image", "data.columns.image", "the column of the image")),
    (_TABLE, row("image_column", "image", "data.columns.image", "the column of the image", needs=_DATASET)),
    ("captions", mapped("caption_column", "text", "data.columns.caption", "the column of the caption")),
    (_TABLE, row("caption_column", str, "data.columns.caption",
        "of dataset_name: captions instead of instance_prompt", needs=_DATASET)),
    ("edits", row("original_image_column", "input_image", "data.conditions",
        "the column of the image before the edit")),
    ("edits", mapped("edited_image_column", "edited_image", "data.columns.image",
        "the column of the image after the edit")),
    ("edits", mapped("edit_prompt_column", "edit_prompt", "data.columns.caption", "the column of the instruction")),
    ("captions edits", mapped("max_train_samples", int, "data.max_samples", "selected by the seed", above=0)),
    ("captions edits", _CACHE),
    (_TABLE, row("repeats", 1, "data.repeats", "how often an epoch visits each image of the subject", above=0)),
    ("token", row("repeats", 100, "data.repeats", "how often an epoch visits each image", above=0)),
    ("subject", row("instance_prompt", str, "data.captions.trigger data.captions.template",
        "the caption of each of them", required=True)),

    # class images
    ("subject", row("class_data_dir", str, "data.prior.path", "the folder of class images", needs=_PRIOR)),
    ("subject", mapped("class_prompt", str, "data.prior.class_prompt",
        "the caption of each of them, and the prompt of missing ones", needs=_PRIOR)),
    ("subject", row("with_prior_preservation", False, "data.prior.balance data.batch_size",
        "as many class images as images of the subject in each batch")),
    ("subject", mapped("prior_loss_weight", 1.0, "data.prior.weight", "of the class images' mean loss",
        least=0, needs=_PRIOR)),
    ("subject", mapped("num_class_images", 100, "data.prior.num_class_images",
        "missing ones are generated by the model before the training", above=0, needs=_PRIOR)),
    ("subject", row("sample_batch_size", 4, "sample.batch_size", "class images that are generated at once", above=0)),
    ("unet+subject sd3 flux flux2 z-image", ignored("prior_generation_precision", str,
        "class images are generated in the dtypes of the run", choices=("no", "fp32", "fp16", "bf16"))),

    # how images are cut, and what is encoded before the training
    ("all", row("resolution", 512, "data.resolution data.buckets.step",
        "the side of the square that every image is cropped to")),
    (_NEW, row("use_aspect_ratio_buckets", False, "data.buckets.shape data.buckets.sizes",
        "eleven shapes from 1:2 to 2:1 of about resolution² pixels")),
    (_NEW, row("aspect_ratio_buckets", str, "data.buckets.sizes", "h1,w1;h2,w2;… instead of these")),
    ("captions subject", mapped("center_crop", False, "data.crop",
        "the center; without it a random crop at each visit", on="center", off="random")),
    ("token", mapped("center_crop", False, "data.crop",
        "the center square; without it images are squeezed into a square", on="center", off="stretch")),
    ("edits", ignored("center_crop", False, "images are resized to the square that would be cropped")),
    (f"captions edits {_TABLE}", mapped("random_flip", False, "data.flip", "half of the visits are mirrored", on=0.5,
        off=0.0)),
    ("sd sdxl", replace(_FILTER, default="bilinear", since="head",
        about="the filter; 0.26.3 is always bilinear, head's default is lanczos")),
    ("unet+adapter dreambooth-flux", _FILTER),
    ("flow+adapter", row("cache_latents", False, "data.cache.latents data.cache.crops objective.posterior",
        "images are encoded once, and the autoencoder is unloaded")),
    ("instruct-pix2pix-sdxl", refused("crops_coords_top_left_h", 0, _CROP)),
    ("instruct-pix2pix-sdxl", refused("crops_coords_top_left_w", 0, _CROP)),
    ("edits", mapped("conditioning_dropout_prob", float, "data.condition_dropout",
        "the probability of each of: only the instruction is dropped, only the image, both", optional=True, least=0)),
    ("sdxl", mapped("proportion_empty_prompts", 0.0, "data.captions.dropout",
        "the probability that a caption is replaced by the empty one", least=0, most=1)),
    ("flux2 qwen-image", mapped("caption_dropout", 0.0, "data.captions.dropout",
        "the probability that a caption of the subject is dropped at a visit; never of a class image", least=0,
        most=1)),
    ("sd3", _length("model.sd3.t5_tokens")),
    ("flux", _length("model.flux.t5_tokens")),
    ("flux2", _length("model.flux2.text_tokens")),
    ("qwen-image", _length("model.qwen_image.text_tokens")),
    ("z-image", _length("model.z_image.text_tokens")),
    ("flux2", row("text_encoder_out_layers", (10.0, 20.0, 30.0), "model.flux2.text_layers",
        "layers whose states are the text embedding; without it 9, 18 and 27, as in the model's pipeline")),

    # batches, and the length of the run
    ("all", mapped("train_batch_size", 16, "data.batch_size",
        "per process in the script; multiplied by the number of processes once", above=0, unit="processes")),
    ("all", mapped("dataloader_num_workers", 0, "data.workers", "processes that decode images")),
    ("all", row("num_train_epochs", 100, "run.epochs", "used without max_train_steps", above=0)),
    ("all", row("max_train_steps", int, "run.steps", "optimizer steps", above=0)),
    ("all", mapped("gradient_accumulation_steps", 1, "optim.accumulation", "batches of one step", above=0)),
    ("all", mapped("gradient_checkpointing", False, "run.gradient_checkpointing.enabled", "of the UNet")),

    # the update
    ("all", row("learning_rate", 1e-4, "optim.lr", "the peak")),
    ("all", row("scale_lr", False, "optim.lr", "the rate times batch, accumulation and processes")),
    ("all", row("lr_scheduler", "constant",
        "optim.schedule.kind optim.schedule.floor optim.schedule.cycles optim.schedule.power",
        "constant has no warm-up in the script; restarts are one cycle; polynomial ends at 1e-7",
        choices=("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup",
                 "piecewise_constant"))),
    ("all", row("lr_warmup_steps", 500, "optim.schedule.warmup_steps", "optimizer steps", least=0)),
    ("subject token", mapped("lr_num_cycles", 1, "optim.schedule.cycles", "of cosine_with_restarts", above=0)),
    ("subject", mapped("lr_power", 1.0, "optim.schedule.power", "of polynomial", above=0)),
    ("captions edits unet+subject textual-inversion-sdxl", mapped("use_8bit_adam", False, "optim.optimizer.kind",
        "needs the extra eight-bit", on="adamw-8bit", off="adamw")),
    ("flow", mapped("use_8bit_adam", False, "optim.optimizer.kind",
        "on a GPU of CUDA, with the extra eight-bit; plain AdamW elsewhere; the start reports which",
        on="adamw-8bit-or-adamw", off="adamw")),
    ("all", row("adam_beta1", 0.9, "optim.optimizer.betas", "of the mean")),
    ("all", row("adam_beta2", 0.999, "optim.optimizer.betas", "of the square")),
    ("all", mapped("adam_weight_decay", 1e-2, "optim.optimizer.weight_decay", "on every parameter")),
    ("all", mapped("adam_epsilon", 1e-8, "optim.optimizer.eps", "added to the root")),
    ("captions edits subject", row("max_grad_norm", 1.0, "optim.clip.norm", "over all parameters")),
    ("sd sdxl edits", mapped("use_ema", False, "optim.ema.rule",
        "min(0.9999, (1 + s)/(10 + s)); the average is exported", on="ramp", off="none",
        fixed={"optim.ema.decay": 0.9999, "optim.ema.interval": 1})),
    ("sd", mapped("offload_ema", False, "optim.ema.device", "the average in main memory", on="cpu", off="same",
        since="head")),
    ("sd", ignored("foreach_ema", False, "the average is the same as without it", since="head")),
    (_TABLE, row("optimizer", "AdamW", "optim.optimizer.kind", "AdamW, or Prodigy, which needs the extra optimizers",
        choices=("AdamW", "adamw", "Prodigy", "prodigy"))),
    (_TABLE, row("prodigy_beta3", float, "optim.optimizer.d_beta", "with Prodigy", needs=_PRODIGY)),
    (_TABLE, ignored("prodigy_decouple", True, f"decoupled weight decay {_ALWAYS}")),
    (_TABLE, ignored("prodigy_use_bias_correction", True, f"it {_ALWAYS}")),
    (_TABLE, ignored("prodigy_safeguard_warmup", True, f"it {_ALWAYS}")),
    ("dreambooth-lora-sdxl sd3 flux", row("text_encoder_lr", 5e-6, "optim.part_lr",
        "of the text encoders; with Prodigy learning_rate is used", least=0, needs=_TEXT)),
    ("dreambooth-lora-sdxl sd3 flux", row("adam_weight_decay_text_encoder", 1e-3, "optim.part_optimizer",
        "of the text encoders", least=0, needs=_TEXT)),
    ("flux2 z-image", ignored("text_encoder_lr", 5e-6, _NO_ENCODER)),
    ("flux2 z-image", ignored("adam_weight_decay_text_encoder", 1e-3, _NO_ENCODER)),

    # the objective
    ("dreambooth", mapped("offset_noise", False, "objective.noise_offset", "a constant per channel", on=0.1, off=0.0)),
    ("captions dreambooth dreambooth-lora-sdxl", mapped("snr_gamma", float, "objective.min_snr_gamma",
        "Min-SNR in the form of the prediction", fixed={"objective.min_snr_form": "prediction"})),
    ("captions", mapped("noise_offset", 0.0, "objective.noise_offset", "a constant per channel")),
    ("sd", mapped("input_perturbation", 0.0, "objective.input_perturbation",
        "more noise in what the model sees, not in its target", optional=True)),
    *(("sdxl", one) for one in timestep_bias.ROWS),
    ("sd captions+adapter", mapped("prediction_type", str, "model.prediction", "by default as in the scheduler's file",
        choices=("epsilon", "v_prediction"), values=_V)),
    ("sdxl", mapped("prediction_type", str, "model.prediction", "by default as in the scheduler's file",
        choices=("epsilon", "v_prediction", "sample"), values=_V)),
    ("sd", refused("dream_training", False, "DREAM (a second prediction in every step) is not supported; leave it out",
        since="head")),
    ("sd", ignored("dream_detail_preservation", 1.0, "it is only used by DREAM, which is off", since="head")),
    ("sd3", replace(_SCHEME, default="logit_normal", choices=_SCHEME.choices[:-1])),
    (f"flux {_NEW}", _SCHEME),
    ("flow", row("logit_mean", 0.0, "objective.flow.mean",
        "of logit_normal; its sign changes, since larger values are less noise in the script", needs=_LOGIT)),
    ("flow", mapped("logit_std", 1.0, "objective.flow.std", "of logit_normal", above=0, needs=_LOGIT)),
    ("flow", mapped("mode_scale", 1.29, "objective.flow.mode_scale", "of mode", needs=_MODE)),
    ("sd3", row("precondition_outputs", 1, "objective.flow.preconditioned", "the loss is that of the clean latents")),
    ("flux", mapped("guidance_scale", 3.5, "model.flux.guidance", "the guidance scale input of dev", least=0)),
    ("flux2 z-image", ignored("guidance_scale", 3.5, "this model has no guidance scale input, as in the script")),

    # what is trained
    ("unet+adapter", mapped("rank", 4, "model.adapter.rank",
        "LoRA of the attention's projections; alpha is the rank, which is a scale of 1", above=0,
        fixed={**_LORA, "model.adapter.targets": ["attention"]})),
    ("flow+adapter", mapped("rank", 4, "model.adapter.rank", "LoRA of the layers of lora_layers", above=0,
        fixed=_LORA)),
    ("flux+adapter flux2 qwen-image z-image", row("lora_alpha", 4, "model.adapter.alpha",
        "the update is multiplied by alpha / rank", above=0)),
    ("subject+adapter", mapped("lora_dropout", 0.0, "model.adapter.dropout",
        "of the adapter's input")),
    ("flow+adapter", row("lora_layers", str, "model.adapter.targets",
        "layers by the ends of their names, separated by commas")),
    ("dreambooth-lora-sd3", row("lora_blocks", str, "model.adapter.targets",
        "numbers of the blocks whose layers get a LoRA, separated by commas")),
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
        "also writes a file for A1111, Forge and ComfyUI", on="both", off="diffusers")),
    ("dreambooth-lora-sdxl", refused("do_edm_style_training", False, "it trains EDM models, such as Playground 2.5, "
        "at the noise levels of their scheduler; write a recipe with model.prediction=edm")),
    ("flow+adapter", row("upcast_before_saving", False, "run.export.dtype",
        "the adapter's file in float32; without it, in the compute dtype")),

    # the run and its folder
    (_NEW, row("offload", False, "data.cache.latents data.cache.crops",
        "images are encoded before the training, like captions, so that no encoder stays in memory")),
    ("flux2 z-image", ignored("fsdp_text_encoder", False,
        "captions are encoded before the training, and the encoder is unloaded")),
    ("token", mapped("save_steps", 500, "run.export.every", "steps between files of the token, in exports/", above=0,
        unit="steps")),
    ("token", refused("save_as_full_pipeline", False, "it would copy the unchanged model; the token's files are "
        "written, which load_textual_inversion reads")),
    ("all", row("output_dir", str, "run.folder run.name run.export.folder",
        "the run folder, which also contains the finished pipeline")),
    ("all", row("seed", int, "run.seed sample.seed", "by default 0, so that a run can be repeated", least=0)),
    ("all", row("mixed_precision", str, "run.precision run.frozen_dtype", "by default that of the launcher",
        choices=tuple(PRECISIONS))),
    ("all", mapped("allow_tf32", False, "run.tf32", "matrix products of float32 on GPUs", optional=True)),
    ("unet", ignored("enable_xformers_memory_efficient_attention", False,
        "torch's attention, which is used, does the same")),
    ("sdxl", ignored("enable_npu_flash_attention", False, _SAME_ATTENTION, since="head")),
    ("all", mapped("checkpointing_steps", 500, "run.save.every", "optimizer steps", above=0, unit="steps")),
    ("all", mapped("checkpoints_total_limit", int, "run.save.keep", "without it all are kept", above=0)),
    ("all", row("resume_from_checkpoint", str, "run.resume",
        "latest resumes, or starts without a checkpoint; by default only a new run can start")),
    ("all", ignored("local_rank", -1, "the launcher's variables contain the rank of a process")),
    ("dreambooth dreambooth-lora", refused("validation_images", list, _IF)),
    ("dreambooth dreambooth-lora", refused("class_labels_conditioning", str, _IF)),
    ("dreambooth", ignored("set_grads_to_none", False, "gradients are always freed")),
    ("dreambooth", ignored("skip_save_text_encoder", False,
        "the finished folder is complete; untrained parts are copied")),
    ("lora-sdxl", ignored("enable_npu_flash_attention", False, _SAME_ATTENTION)),
    ("lora-sdxl", ignored("debug_loss", False,
        "it logs the batch's loss under each image's name; metrics.jsonl has the step's loss")),
    ("flux flux2 z-image", ignored("enable_npu_flash_attention", False,
        "torch's attention is used, on every device")),

    # previews and trackers
    ("sd", row("validation_prompts", list, "sample.prompts run.preview.every run.preview.weights",
        "one image each, from the average if there is one")),
    ("instruct-pix2pix", row("val_image_url", str, "sample.conditions",
        "the image that is edited in previews: a file; addresses are refused")),
    ("instruct-pix2pix-sdxl", row("val_image_url_or_path", str, "sample.conditions",
        "the image that is edited in previews: a file; addresses are refused")),
    ("sdxl captions+adapter edits", row("validation_prompt", str,
        "sample.prompts run.preview.every run.preview.weights",
        "sampled during the run, from the average if there is one")),
    ("subject token", row("validation_prompt", str, "sample.prompts run.preview.every", "sampled during the run")),
    ("sdxl captions+adapter subject token edits", row("num_validation_images", 4, "sample.prompts",
        "number of images of it", above=0)),
    ("token dreambooth instruct-pix2pix-sdxl", row("validation_steps", 100, "run.preview.every",
        "steps between previews", above=0)),
    ("dreambooth", mapped("validation_scheduler", "DPMSolverMultistepScheduler", "sample.solver",
        "the solver of previews", choices=tuple(_SOLVERS), values=_SOLVERS)),
    ("captions instruct-pix2pix", row("validation_epochs", 1, "run.preview.every", "epochs between previews", above=0)),
    ("subject+adapter flow", row("validation_epochs", 50, "run.preview.every", "epochs between previews", above=0)),
    (_NEW, row("final_validation_prompt", str, "sample.prompts run.preview.every",
        "sampled before the first step and at the end, without a validation_prompt")),
    (_NEW, row("skip_final_inference", False, "sample.prompts run.preview.every",
        "final_validation_prompt is not sampled")),
    ("all", row("report_to", "tensorboard", "run.tensorboard run.wandb.mode", "metrics.jsonl is always written",
        choices=("tensorboard", "wandb", "comet_ml", "all"))),
    ("all", ignored("logging_dir", "logs", "logs are in logs/ of the run folder")),
    ("sd", row("tracker_project_name", "text2image-fine-tune", "run.wandb.project",
        "with wandb; the run's name in TensorBoard is the name of its folder",
        needs=("report_to=wandb", "the run's name in TensorBoard is the name of its folder"))),
    ("all", refused("push_to_hub", False, "a run does not upload: it would need your token and the network for hours; "
        "upload the finished folder with `hf upload`")),
    ("all", refused("hub_token", str,
        "everyone on the machine can read a token on a command line; remove it, and keep it in `hf auth login`")),
    ("all", ignored("hub_model_id", str, "nothing is uploaded")),
    ("textual-inversion", row("validation_epochs", int, "run.preview.every", "an old name; epochs between previews",
        above=0)),
    ("textual-inversion", ignored("no_safe_serialization", False,
        "files are safetensors, which every reader of .bin files takes")),
)  # fmt: skip
"""Selector of the scripts that have a flag, and its row."""

SETTINGS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("all", "resolution", {"data.buckets.shape": "square"}),
    ("token", "resolution", {"data.flip": 0.5, "data.resize": "bicubic"}),
    ("edits", "resolution", {"data.crop": "stretch", "data.resize": "bicubic"}),
    ("edits", "pretrained_model_name_or_path", {"model.task": "edit"}),
    ("edits", "validation_prompt", {"sample.image_guidance": 1.5}),
    ("dreambooth dreambooth-lora", "center_crop", {"data.flip": 0.0}),
    ("dreambooth dreambooth-sd3 flow+adapter", "resolution", {"data.resize": "bilinear"}),
    ("sdxl", "", {"data.cache.latents": True, "data.cache.text": True}),
    ("sdxl", "center_crop random_flip", {"data.cache.crops": 1}),
    (_NEW, "train_batch_size", {"data.remainder": "drop"}),
    ("token", "placeholder_token", {"model.train": ["tokens"]}),
    ("adapter", "output_dir", {"run.export.adapter": "diffusers"}),
    ("captions edits", "lr_scheduler", {"optim.schedule.cycles": 1, "optim.schedule.power": 1.0}),
    ("token", "lr_scheduler", {"optim.schedule.power": 1.0}),
    ("textual-inversion", "adam_beta1", {"optim.optimizer.kind": "adamw"}),
    ("token", "output_dir", {"optim.clip.norm": None}),
    ("captions edits subject", "max_grad_norm", {"optim.clip.scope": "all"}),
    ("captions+adapter subject token", "output_dir", {"optim.ema.rule": "none"}),
    ("flow", "weighting_scheme", {"objective.flow.grid": "table", "objective.flow.shift": "table"}),
    ("flux2 z-image", "pretrained_model_name_or_path", {"objective.posterior": "mean"}),
    ("all", "mixed_precision", {"run.weight_dtype": "fp32"}),
    ("sdxl sd3 textual-inversion-sdxl", "mixed_precision", {"run.vae_dtype": "fp32"}),
    ("lora-sdxl dreambooth-lora-sdxl", "pretrained_vae_model_name_or_path", {"run.vae_dtype": "fp32"}),
)
"""Settings of scripts that no flag controls: selector of the scripts, the flags that are named as their origin, and the
settings."""

BNB_FILE = FileTable(
    flag="bnb_quantization_config_path",
    prefix=BNB,
    rows=(
        row("load_in_4bit", False, "run.frozen_dtype", "weight matrices in 4 bits"),
        row("load_in_8bit", False, "run.frozen_dtype", "weight matrices in 8 bits"),
        row("bnb_4bit_quant_type", "fp4", "run.frozen_dtype", "nf4 is used for either", choices=("fp4", "nf4")),
        ignored(
            "bnb_4bit_compute_dtype", str, "matrix products are in the dtype of --mixed_precision, as in the script"
        ),
        ignored("bnb_4bit_use_double_quant", False, "scales of blocks are not quantized"),
        ignored("bnb_4bit_quant_storage", str, _AS_IT_IS),
        ignored("llm_int8_threshold", 6.0, _AS_IT_IS),
        ignored("llm_int8_skip_modules", list, _AS_IT_IS),
        ignored("llm_int8_enable_fp32_cpu_offload", False, _AS_IT_IS),
        ignored("llm_int8_has_fp16_weight", False, _AS_IT_IS),
        ignored("quant_method", str, "of bitsandbytes, as in the script"),
    ),
)
"""Keys of the file of --bnb_quantization_config_path."""


def flags_of(script: ExampleScript) -> tuple[Row, ...]:
    """The rows of a script's flags, with the script's defaults."""
    rows = [one for selector, one in FLAGS if script.is_one_of(selector)]
    return tuple(replace(one, default=script.defaults.get(one.flag, one.default)) for one in rows)
