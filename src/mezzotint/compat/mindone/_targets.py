"""The classes that MindONE's SDXL YAML files may name, by the last part of their `target:`, with all their params. The
rest of the path is ignored, since module paths have changed over time (`gm.`, `sgm.`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from mezzotint.compat.mindone._config import Param, Target, ignored, only, params

LORA = "trains LoRA, which is not supported yet"
DREAMBOOTH = "trains DreamBooth, which is not supported yet"
CONTROLNET = "trains ControlNet, which is not supported yet"
INVERSION = "trains textual inversion, which is not supported yet"
OF_WEIGHTS = "the sizes of the network are those of the weights"
ONE_KIND = "SDXL's network requires it"
NAMED = "give the weights with --weight"
OF_LINE = "the weights are those of --weight"
SCALED = "latents are scaled by the autoencoder's config.json"
LAYER = "SDXL uses the states before the last layer"
TOKENS = "captions have 77 tokens"


def _refused(role: str, why: str, *names: str) -> dict[str, Target]:
    return {name: Target(role, refused=why) for name in names}


def _unread(about: str = "it is not used, as in MindONE", **defaults: Any) -> dict[str, Param]:
    """Keys of any kind that have no effect."""
    return {key: replace(one, kind="any") for key, one in ignored(about, **defaults).items()}


SIZES = (
    "adm_in_channels", "in_channels", "out_channels", "model_channels", "attention_resolutions", "num_res_blocks",
    "channel_mult", "num_head_channels", "num_heads", "transformer_depth_middle", "context_dim",
)  # fmt: skip
"""Params of the network that the weights determine."""

BASE: Mapping[str, Any] = {
    "adm_in_channels": 2816, "in_channels": 4, "out_channels": 4, "model_channels": 320,
    "attention_resolutions": [4, 2], "num_res_blocks": 2, "channel_mult": [1, 2, 4], "num_head_channels": 64,
    "transformer_depth": [1, 2, 10], "context_dim": 2048,
}  # fmt: skip
REFINER: Mapping[str, Any] = {
    **BASE, "adm_in_channels": 2560, "model_channels": 384, "channel_mult": [1, 2, 4, 4], "transformer_depth": 4,
    "context_dim": [1280, 1280, 1280, 1280],
}  # fmt: skip
"""The networks of SDXL's base model and of its refiner."""

# fmt: off
_ENGINE = {
    "scale_factor": Param("number", None, only=(None, 0.13025), about="it is the factor of SDXL's autoencoder"),
    **only(SCALED, latents_mean=None, latents_std=None),
    **params(disable_first_stage_amp=False),
    **only("there is only one kind of input", input_key="image"),
    **only("concatenated input channels are not supported", network_wrapper=None),
    **only(NAMED, ckpt_path=None),
    **_unread("--use_ema keeps an average", use_ema=False),
    **_unread(ema_decay_rate=0.9999, log_keys=None, no_cond_log=False),
    **_unread("models of cached data are not loaded", load_first_stage_model=True, load_conditioner=True),
    **params(denoiser_config=dict, network_config=dict, conditioner_config=dict, first_stage_config=dict,
             sigma_sampler_config=dict, loss_fn_config=dict, sampler_config=dict),
}
_UNET = {
    **params(**dict.fromkeys(SIZES), transformer_depth=None),
    "num_classes": Param("any", "sequential", only=("sequential",), about=ONE_KIND),
    **only(ONE_KIND, use_spatial_transformer=True, use_linear_in_transformer=True, legacy=False),
    **params(spatial_transformer_attn_type="flash-attention", use_recompute=False, use_checkpoint=False),
    **only("dropout in networks is not supported", dropout=0.0),
    **only(ONE_KIND, conv_resample=True),
    **only("images have two dimensions", dims=2),
    **only(ONE_KIND, num_heads_upsample=-1, use_scale_shift_norm=False, resblock_updown=False,
           use_new_attention_order=False, n_embed=None, disable_self_attentions=None, num_attention_blocks=None,
           disable_middle_self_attn=False),
}
_CLIP = {
    **params(version="openai/clip-vit-large-patch14"),
    **only(LAYER, layer="hidden"),
    "layer_idx": Param("any", 11, only=(11,), about="SDXL uses the states before the last of twelve layers"),
    **ignored(TOKENS, max_length=77),
    **params(freeze=True),
    **ignored("it is not used, as in MindONE", always_return_pooled=False, device=None),
}
_OPEN_CLIP = {
    **params(arch="ViT-bigG-14-Text"),
    **ignored(OF_LINE, version=None),
    **only(LAYER, layer="penultimate"),
    **ignored(TOKENS, max_length=77),
    **params(freeze=True),
    **only("SDXL needs the pooled text", always_return_pooled=True),
    **only("SDXL's second encoder returns states and pooled text", legacy=False),
    **ignored(OF_LINE, require_pretrained=False),
    **_unread(device=None),
}
_AUTOENCODER = {
    **ignored(OF_WEIGHTS, embed_dim=4), **_unread(monitor="val/rec_loss"), **params(ddconfig=dict, lossconfig=dict),
    **only(NAMED, ckpt_path=None),
}
_INDEX = {
    **only("the schedule has 1000 timesteps", num_idx=1000),
    **params(discretization_config=dict),
    **only("the table has one entry per timestep", do_append_zero=False),
    **only("an index is its timestep", flip=True),
}
_LEGACY = {
    **only("it is the start of SDXL's schedule", linear_start=0.00085),
    **only("it is the end of SDXL's schedule", linear_end=0.012),
    **only("it is the length of SDXL's schedule", num_timesteps=1000),
}
_LOSS = {
    "type": Param("text", "l2", only=("l2", "l1"), about="there is no other loss, as in MindONE"),
    "loss_type": Param("text", "l2", only=("l2", "l1"), about="there is no other loss"),
    **params(offset_noise_level=0.0),
    "batch2model_keys": Param("any", None, only=(None, []), about="the network's inputs are only text and sizes"),
    **only("the loss is always computed in float32", keep_loss_fp32=True),
    **params(loss_weighting_config=dict, sigma_sampler_config=dict),
}

_MODELS: dict[str, Target] = {
    "DiffusionEngine": Target("model", _ENGINE),
    "DiffusionEngineMultiGraph": Target("model", _ENGINE),
    **_refused("model", DREAMBOOTH, "DiffusionEngineDreamBooth"),
    **_refused("model", CONTROLNET, "DiffusionEngineControlNet"),
    "UNetModel": Target("denoising network", _UNET),
    **_refused("denoising network", LORA, "UNetModel_lora"),
    **_refused("denoising network", CONTROLNET, "ControlnetUnetModel", "ControlNet"),
    "GeneralConditioner": Target("conditioner", params(emb_models=list)),
    "FrozenCLIPEmbedder": Target("embedder", _CLIP),
    "FrozenOpenCLIPEmbedder2": Target("embedder", _OPEN_CLIP),
    "ConcatTimestepEmbedderND": Target("embedder", {**params(outdim=256), **_unread(is_first=None, num_features=None)}),
    **_refused("embedder", LORA, "FrozenCLIPEmbedder_lora", "FrozenOpenCLIPEmbedder2_lora"),
    **_refused("embedder", "reads Chinese captions, which is not supported yet", "FrozenCnCLIPEmbedder"),
    **_refused("embedder", "reads captions with CLIP-L's tokenizer, which is not supported",
               "FrozenOpenCLIPEmbedder2_CLIPTokenizer"),
    **_refused("embedder", "reads images as prompts, which is not supported yet", "FrozenOpenCLIPImageEmbedder"),
    "AutoencoderKLInferenceWrapper": Target("autoencoder", _AUTOENCODER),
    **_refused("autoencoder", "trains on the mean of the latents; Mezzotint samples them: write "
               "AutoencoderKLInferenceWrapper", "AutoencoderKLModeOnly"),
    **_refused("autoencoder", "returns moments, not latents: write AutoencoderKLInferenceWrapper", "AutoencoderKL"),
    "Identity": Target("placeholder"),
}

_DENOISER = params(weighting_config=dict, scaling_config=dict)
_DIFFUSION: dict[str, Target] = {
    "DiscreteDenoiser": Target("denoiser", {**_DENOISER, **params(quantize_c_noise=True), **_INDEX}),
    "Denoiser": Target("denoiser", _DENOISER),
    **dict.fromkeys(("EpsWeighting", "VWeighting", "UnitWeighting"), Target("weighting")),
    "EDMWeighting": Target("weighting", params(sigma_data=0.5)),
    **dict.fromkeys(("EpsScaling", "EpsScaling2", "VScaling", "VScalingWithEDMcNoise"), Target("scaling")),
    "EDMScaling": Target("scaling", params(sigma_data=0.5)),
    "LegacyDDPMDiscretization": Target("table of sigmas", _LEGACY),
    **_refused("table of sigmas", "is a table for sampling; SDXL was trained with LegacyDDPMDiscretization",
               "EDMDiscretization", "DiffusersDDPMDiscretization"),
    "DiscreteSampling": Target("sigma sampler", _INDEX),
    "DiscreteSamplingForZero3": Target("sigma sampler", _INDEX),
    "EDMSampling": Target("sigma sampler", params(p_mean=-1.2, p_std=1.2)),
    "StandardDiffusionLoss": Target("loss", _LOSS),
    "StandardDiffusionLoss2": Target("loss", _LOSS),
}

_ADAM = params(beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=1e-6)
_VERBOSE = ignored("it is not used, as in MindONE", verbosity_interval=0)
_CYCLES = {**params(warm_up_steps=list, f_min=list, f_max=list, f_start=list, cycle_lengths=list), **_VERBOSE}
_OPTIMIZERS: dict[str, Target] = {
    "AdamWeightDecay": Target("optimizer", _ADAM),
    "SGD": Target("optimizer", {
        **params(momentum=0.0, dampening=0.0, weight_decay=1e-6, nesterov=False),
        **ignored("the loss has its own scale", loss_scale=1.0),
    }),
    "AdamWeightDecayZeRO1": Target("optimizer", {**_ADAM, **params(shard_size=int)}),
    "LambdaWarmUpScheduler": Target("scheduler", params(warm_up_steps=0)),
    "LambdaWarmUpCosineScheduler": Target("scheduler", {
        **params(warm_up_steps=0, lr_min=0.0, lr_max=1.0, lr_start=0.0, max_decay_steps=-1), **_VERBOSE,
    }),
    "LambdaWarmUpCosineScheduler2": Target("scheduler", _CYCLES),
    "LambdaLinearScheduler": Target("scheduler", _CYCLES),
    "MultiStepLR": Target("scheduler", params(milestones=list, gamma=0.1)),
}

_TEXT2IMAGE = {
    "target_size": Param("any", 1024),
    **params(transforms=list, batched_transforms=list, image_filter_size=0, filter_small_size=False, multi_aspect=list),
    **ignored("--seed is the seed of everything", seed=42),
    **ignored("data.per_batch_size is used", per_batch_size=1),
    **params(prompt_empty_probability=0.0),
    **ignored("large images are read in full resolution, up to data.max_pixels", max_pixels=18_000_000),
    **only(TOKENS, lpw=False),
    **ignored(TOKENS, max_embeddings_multiples=4),
    **ignored("samples always have names", return_sample_name=False),
}
_WEB = {
    **_TEXT2IMAGE, **params(caption_key="caption"),
    **ignored("samples are counted in the shards", shardlist_desc=None, num_samples=None),
}
_RESCALED = {
    **_unread(key="image"), **only("images are integers up to 255 before it", isfloat=False),
}
_DATA: dict[str, Target] = {
    "Text2ImageDataset": Target("data set", _TEXT2IMAGE),
    "T2I_Webdataset": Target("data set", _WEB),
    "T2I_Webdataset_RndAcs": Target("data set", _WEB),
    **_refused("data set", DREAMBOOTH, "Text2ImageDatasetDreamBooth"),
    **_refused("data set", INVERSION, "Text2ImageDatasetTextualInversion"),
    **_refused("data set", CONTROLNET, "Text2ImageControlNetDataset"),
    "Resize": Target("transform", params(size=None, interpolation=3)),
    "Rescaler": Target("transform", _RESCALED),
    **_refused("transform", CONTROLNET, "RescalerControlNet"),
    "CenterCrop": Target("transform", params(size=None)),
    "RandomHorizontalFlip": Target("transform", params(p=0.5)),
    "Transpose": Target("transform", only("images have channels last before it", type="hwc2chw")),
    "AddOriginalImageSizeAsTupleAndCropToSquare": Target("transform"),
    "BatchedResizedAndRandomCrop": Target("transform of batches"),
    "BatchedRescaler": Target("transform of batches", _RESCALED),
    "BatchedTranspose": Target("transform of batches", only("images have channels last before it", type="bhwc2bchw")),
    **_refused("transform of batches", "stretches images, which is not supported: write BatchedResizedAndRandomCrop",
               "BatchedResize"),
}
# fmt: on

TARGETS: Mapping[str, Target] = MappingProxyType({**_MODELS, **_DIFFUSION, **_OPTIMIZERS, **_DATA})
"""All classes by the last part of their names."""
