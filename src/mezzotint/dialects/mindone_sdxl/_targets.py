"""The classes that MindONE's SDXL YAML files may name, by the last part of their `target:`, with all their params. The
same class lies at different module paths over time (`gm.`, `sgm.`), so the rest of the path is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mezzotint.dialects.shared.targets import Param, Target

ENGINE, NETWORK, CONDITIONER, EMBEDDER = "model", "denoising network", "conditioner", "embedder"
VAE, LOSS, SIGMAS, DENOISER = "autoencoder", "loss", "sigma sampler", "denoiser"
SCALING, WEIGHTING, TABLE = "scaling", "weighting", "table of sigmas"
OPTIMIZER, SCHEDULER, DATASET, TRANSFORM = "optimizer", "scheduler", "data set", "transform"
BATCH_TRANSFORM, NOTHING, SAMPLER, GUIDER = "transform of batches", "placeholder", "sampler", "guider"

LORA = "trains LoRA, which is not supported yet"
DREAMBOOTH = "trains DreamBooth, which is not supported yet"
CONTROLNET = "trains ControlNet, which is not supported yet"
INVERSION = "trains textual inversion, which is not supported yet"
OF_WEIGHTS = "the network is as large as the weights say"
ONE_KIND = "SDXL's network has it so"
UNUSED = "nothing reads it, there as here"


def _params(**params: Param) -> Mapping[str, Param]:
    return MappingProxyType(params)


def _refused(role: str, why: str, *names: str) -> dict[str, Target]:
    return {name: Target(role, refused=why) for name in names}


def _idle(kind: Any, default: Any, about: str = UNUSED) -> Param:
    return Param(kind, default, idle=True, about=about)


SIZES = (
    "adm_in_channels", "in_channels", "out_channels", "model_channels", "attention_resolutions", "num_res_blocks",
    "channel_mult", "num_head_channels", "num_heads", "transformer_depth_middle", "context_dim",
)  # fmt: skip
"""Params of the network that its weights decide."""

BASE: Mapping[str, Any] = MappingProxyType(
    {
        "adm_in_channels": 2816, "in_channels": 4, "out_channels": 4, "model_channels": 320,
        "attention_resolutions": [4, 2], "num_res_blocks": 2, "channel_mult": [1, 2, 4], "num_head_channels": 64,
        "transformer_depth": [1, 2, 10], "context_dim": 2048,
    }
)  # fmt: skip
REFINER: Mapping[str, Any] = MappingProxyType(
    {
        **BASE, "adm_in_channels": 2560, "model_channels": 384, "channel_mult": [1, 2, 4, 4], "transformer_depth": 4,
        "context_dim": [1280, 1280, 1280, 1280],
    }
)  # fmt: skip
"""The networks of SDXL's base model and of its refiner."""

_ENGINE = _params(
    scale_factor=Param("number", None, only=(None, 0.13025), about="it is SDXL's autoencoder's"),
    latents_mean=Param("any", None, only=(None,), about="latents are scaled as the autoencoder's config.json says"),
    latents_std=Param("any", None, only=(None,), about="latents are scaled as the autoencoder's config.json says"),
    disable_first_stage_amp=Param("switch", False),
    input_key=Param("text", "image", only=("image",), about="there is one kind of input"),
    network_wrapper=Param("any", None, only=(None,), about="channels are not joined to the latents"),
    ckpt_path=Param("any", None, only=(None,), about="name the weights with --weight"),
    use_ema=_idle("any", False, "--use_ema keeps an average"),
    ema_decay_rate=_idle("any", 0.9999),
    log_keys=_idle("any", None),
    no_cond_log=_idle("any", False),
    load_first_stage_model=_idle("any", True, "what is cached is not loaded"),
    load_conditioner=_idle("any", True, "what is cached is not loaded"),
    **{
        f"{name}_config": Param("object")
        for name in ("denoiser", "network", "conditioner", "first_stage", "sigma_sampler", "loss_fn", "sampler")
    },
)

_UNET = _params(
    **{size: Param("any") for size in SIZES},
    transformer_depth=Param("any"),
    num_classes=Param("any", "sequential", only=("sequential",), about=ONE_KIND),
    use_spatial_transformer=Param("switch", True, only=(True,), about=ONE_KIND),
    use_linear_in_transformer=Param("switch", True, only=(True,), about=ONE_KIND),
    legacy=Param("switch", False, only=(False,), about=ONE_KIND),
    spatial_transformer_attn_type=Param("text", "flash-attention"),
    use_recompute=Param("switch", False),
    use_checkpoint=Param("switch", False),
    dropout=Param("number", 0.0, only=(0.0,), about="networks are trained without dropout"),
    conv_resample=Param("switch", True, only=(True,), about=ONE_KIND),
    dims=Param("whole", 2, only=(2,), about="pictures have two"),
    num_heads_upsample=Param("whole", -1, only=(-1,), about=ONE_KIND),
    use_scale_shift_norm=Param("switch", False, only=(False,), about=ONE_KIND),
    resblock_updown=Param("switch", False, only=(False,), about=ONE_KIND),
    use_new_attention_order=Param("switch", False, only=(False,), about=ONE_KIND),
    n_embed=Param("any", None, only=(None,), about=ONE_KIND),
    disable_self_attentions=Param("any", None, only=(None,), about=ONE_KIND),
    num_attention_blocks=Param("any", None, only=(None,), about=ONE_KIND),
    disable_middle_self_attn=Param("switch", False, only=(False,), about=ONE_KIND),
)

_CLIP = _params(
    version=Param("text", "openai/clip-vit-large-patch14"),
    layer=Param("text", "hidden", only=("hidden",), about="SDXL takes the states before the last layer"),
    layer_idx=Param("any", 11, only=(11,), about="SDXL takes the states before the last of twelve layers"),
    max_length=_idle("whole", 77, "captions have 77 tokens"),
    freeze=Param("switch", True),
    always_return_pooled=_idle("switch", False),
    device=_idle("any", None),
)
_OPEN_CLIP = _params(
    arch=Param("text", "ViT-bigG-14-Text"),
    version=_idle("any", None, "the weights are those of --weight"),
    layer=Param("text", "penultimate", only=("penultimate",), about="SDXL takes the states before the last layer"),
    max_length=_idle("whole", 77, "captions have 77 tokens"),
    freeze=Param("switch", True),
    always_return_pooled=Param("switch", True, only=(True,), about="SDXL is told the pooled text"),
    legacy=Param("switch", False, only=(False,), about="SDXL's second encoder returns states and pooled text"),
    require_pretrained=_idle("switch", False, "the weights are those of --weight"),
    device=_idle("any", None),
)
_AUTOENCODER = _params(
    embed_dim=_idle("whole", 4, OF_WEIGHTS),
    monitor=_idle("any", "val/rec_loss"),
    ddconfig=Param("object"),
    lossconfig=Param("object"),
    ckpt_path=Param("any", None, only=(None,), about="name the weights with --weight"),
)
_INDEX = _params(
    num_idx=Param("whole", 1000, only=(1000,), about="the schedule has 1000 timesteps"),
    discretization_config=Param("object"),
    do_append_zero=Param("switch", False, only=(False,), about="the table has one entry a timestep"),
    flip=Param("switch", True, only=(True,), about="an index is its timestep"),
)
_LEGACY = _params(
    linear_start=Param("number", 0.00085, only=(0.00085,), about="SDXL's schedule begins so"),
    linear_end=Param("number", 0.012, only=(0.012,), about="SDXL's schedule ends so"),
    num_timesteps=Param("whole", 1000, only=(1000,), about="SDXL's schedule has so many"),
)
_LOSS = _params(
    type=Param("text", "l2", only=("l2", "l1"), about="there is no other, there as here"),
    loss_type=Param("text", "l2", only=("l2", "l1"), about="there is no other"),
    offset_noise_level=Param("number", 0.0),
    batch2model_keys=Param("any", None, only=(None, []), about="the network is told text and sizes alone"),
    keep_loss_fp32=Param("switch", True, only=(True,), about="the loss is always taken in float32"),
    loss_weighting_config=Param("object"),
    sigma_sampler_config=Param("object"),
)

_MODELS: dict[str, Target] = {
    "DiffusionEngine": Target(ENGINE, _ENGINE),
    "DiffusionEngineMultiGraph": Target(ENGINE, _ENGINE),
    **_refused(ENGINE, DREAMBOOTH, "DiffusionEngineDreamBooth"),
    **_refused(ENGINE, CONTROLNET, "DiffusionEngineControlNet"),
    "UNetModel": Target(NETWORK, _UNET),
    **_refused(NETWORK, LORA, "UNetModel_lora"),
    **_refused(NETWORK, CONTROLNET, "ControlnetUnetModel", "ControlNet"),
    "GeneralConditioner": Target(CONDITIONER, _params(emb_models=Param("list"))),
    "FrozenCLIPEmbedder": Target(EMBEDDER, _CLIP),
    "FrozenOpenCLIPEmbedder2": Target(EMBEDDER, _OPEN_CLIP),
    "ConcatTimestepEmbedderND": Target(
        EMBEDDER, _params(outdim=Param("whole", 256), is_first=_idle("any", None), num_features=_idle("any", None))
    ),
    **_refused(EMBEDDER, LORA, "FrozenCLIPEmbedder_lora", "FrozenOpenCLIPEmbedder2_lora"),
    **_refused(EMBEDDER, "reads Chinese captions, which is not supported yet", "FrozenCnCLIPEmbedder"),
    **_refused(
        EMBEDDER, "reads captions with CLIP-L's tokenizer, which is not supported",
        "FrozenOpenCLIPEmbedder2_CLIPTokenizer",
    ),
    **_refused(EMBEDDER, "reads pictures as prompts, which is not supported yet", "FrozenOpenCLIPImageEmbedder"),
    "AutoencoderKLInferenceWrapper": Target(VAE, _AUTOENCODER),
    **_refused(
        VAE, "trains on the mean of the latents, and here they are drawn: write AutoencoderKLInferenceWrapper",
        "AutoencoderKLModeOnly",
    ),
    **_refused(VAE, "returns moments, not latents: write AutoencoderKLInferenceWrapper", "AutoencoderKL"),
    "Identity": Target(NOTHING),
}  # fmt: skip

_DIFFUSION: dict[str, Target] = {
    "DiscreteDenoiser": Target(
        DENOISER,
        _params(
            weighting_config=Param("object"), scaling_config=Param("object"),
            quantize_c_noise=Param("switch", True), **_INDEX,
        ),
    ),
    "Denoiser": Target(DENOISER, _params(weighting_config=Param("object"), scaling_config=Param("object"))),
    "EpsWeighting": Target(WEIGHTING),
    "VWeighting": Target(WEIGHTING),
    "UnitWeighting": Target(WEIGHTING),
    "EDMWeighting": Target(WEIGHTING, _params(sigma_data=Param("number", 0.5))),
    "EpsScaling": Target(SCALING),
    "EpsScaling2": Target(SCALING),
    "VScaling": Target(SCALING),
    "VScalingWithEDMcNoise": Target(SCALING),
    "EDMScaling": Target(SCALING, _params(sigma_data=Param("number", 0.5))),
    "LegacyDDPMDiscretization": Target(TABLE, _LEGACY),
    **_refused(TABLE, "is a table to draw with; LegacyDDPMDiscretization is what SDXL learned", "EDMDiscretization",
               "DiffusersDDPMDiscretization"),
    "DiscreteSampling": Target(SIGMAS, _INDEX),
    "DiscreteSamplingForZero3": Target(SIGMAS, _INDEX),
    "EDMSampling": Target(SIGMAS, _params(p_mean=Param("number", -1.2), p_std=Param("number", 1.2))),
    "StandardDiffusionLoss": Target(LOSS, _LOSS),
    "StandardDiffusionLoss2": Target(LOSS, _LOSS),
}  # fmt: skip

_CYCLES = {name: Param("list") for name in ("warm_up_steps", "f_min", "f_max", "f_start", "cycle_lengths")}
_OPTIMIZERS: dict[str, Target] = {
    "AdamWeightDecay": Target(
        OPTIMIZER,
        _params(
            beta1=Param("number", 0.9), beta2=Param("number", 0.999), eps=Param("number", 1e-6),
            weight_decay=Param("number", 1e-6),
        ),
    ),
    "SGD": Target(
        OPTIMIZER,
        _params(
            momentum=Param("number", 0.0), dampening=Param("number", 0.0), weight_decay=Param("number", 1e-6),
            nesterov=Param("switch", False), loss_scale=_idle("number", 1.0, "the loss has a scale of its own"),
        ),
    ),
    "AdamWeightDecayZeRO1": Target(
        OPTIMIZER,
        _params(
            beta1=Param("number", 0.9), beta2=Param("number", 0.999), eps=Param("number", 1e-6),
            weight_decay=Param("number", 1e-6), shard_size=Param("whole", None),
        ),
    ),
    "LambdaWarmUpScheduler": Target(SCHEDULER, _params(warm_up_steps=Param("whole", 0))),
    "LambdaWarmUpCosineScheduler": Target(
        SCHEDULER,
        _params(
            warm_up_steps=Param("whole", 0), lr_min=Param("number", 0.0), lr_max=Param("number", 1.0),
            lr_start=Param("number", 0.0), max_decay_steps=Param("whole", -1),
            verbosity_interval=_idle("whole", 0),
        ),
    ),
    "LambdaWarmUpCosineScheduler2": Target(SCHEDULER, _params(**_CYCLES, verbosity_interval=_idle("whole", 0))),
    "LambdaLinearScheduler": Target(SCHEDULER, _params(**_CYCLES, verbosity_interval=_idle("whole", 0))),
    "MultiStepLR": Target(SCHEDULER, _params(milestones=Param("list"), gamma=Param("number", 0.1))),
}  # fmt: skip

_TEXT2IMAGE = _params(
    target_size=Param("any", 1024),
    transforms=Param("list"),
    batched_transforms=Param("list"),
    image_filter_size=Param("whole", 0),
    filter_small_size=Param("switch", False),
    multi_aspect=Param("list"),
    seed=_idle("whole", 42, "--seed draws everything"),
    per_batch_size=_idle("whole", 1, "data.per_batch_size counts"),
    prompt_empty_probability=Param("number", 0.0),
    max_pixels=_idle("whole", 18_000_000, "large pictures are read whole, and those above data.max_pixels not at all"),
    lpw=Param("switch", False, only=(False,), about="captions have 77 tokens"),
    max_embeddings_multiples=_idle("whole", 4, "captions have 77 tokens"),
    return_sample_name=_idle("switch", False, "samples have names anyway"),
)
_WEB = _params(
    **_TEXT2IMAGE,
    caption_key=Param("text", "caption"),
    shardlist_desc=_idle("any", None, "the shards are counted"),
    num_samples=_idle("any", None, "the shards are counted"),
)
_SIZE = Param("any")
_ISFLOAT = Param("switch", False, only=(False,), about="pictures are whole numbers up to 255 before it")
_DATA: dict[str, Target] = {
    "Text2ImageDataset": Target(DATASET, _TEXT2IMAGE),
    "T2I_Webdataset": Target(DATASET, _WEB),
    "T2I_Webdataset_RndAcs": Target(DATASET, _WEB),
    **_refused(DATASET, DREAMBOOTH, "Text2ImageDatasetDreamBooth"),
    **_refused(DATASET, INVERSION, "Text2ImageDatasetTextualInversion"),
    **_refused(DATASET, CONTROLNET, "Text2ImageControlNetDataset"),
    "Resize": Target(TRANSFORM, _params(size=_SIZE, interpolation=Param("whole", 3))),
    "Rescaler": Target(TRANSFORM, _params(key=_idle("any", "image"), isfloat=_ISFLOAT)),
    **_refused(TRANSFORM, CONTROLNET, "RescalerControlNet"),
    "CenterCrop": Target(TRANSFORM, _params(size=_SIZE)),
    "RandomHorizontalFlip": Target(TRANSFORM, _params(p=Param("number", 0.5))),
    "Transpose": Target(
        TRANSFORM,
        _params(type=Param("text", "hwc2chw", only=("hwc2chw",), about="pictures come with channels last")),
    ),
    "AddOriginalImageSizeAsTupleAndCropToSquare": Target(TRANSFORM),
    "BatchedResizedAndRandomCrop": Target(BATCH_TRANSFORM),
    "BatchedRescaler": Target(BATCH_TRANSFORM, _params(key=_idle("any", "image"), isfloat=_ISFLOAT)),
    "BatchedTranspose": Target(
        BATCH_TRANSFORM,
        _params(type=Param("text", "bhwc2bchw", only=("bhwc2bchw",), about="pictures come with channels last")),
    ),
    **_refused(
        BATCH_TRANSFORM, "stretches pictures, which is not done here: write BatchedResizedAndRandomCrop",
        "BatchedResize",
    ),
}  # fmt: skip

TARGETS: Mapping[str, Target] = MappingProxyType({**_MODELS, **_DIFFUSION, **_OPTIMIZERS, **_DATA})
"""Every class by the last part of its name."""
