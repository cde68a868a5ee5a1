"""The keys of a job's model and of its data sets, a row for each."""

from __future__ import annotations

from mezzotint.compat.ai_toolkit._rows import ADAPTERS, ASSISTANTS, CONTROL, PRESERVATION, SHORT, note_section, of
from mezzotint.compat.kit.dialect import Row, ignored, row, waits

_OFFLOAD = "blocks of the denoiser are kept in host memory and streamed"
_RECOVERY = "accuracy recovery adapters"
_QUANTIZED = "quantization with exceptions"
_AUGMENTATIONS = "augmentations"


def _kind(flag: str, family: str) -> Row:
    return row(f"model.{flag}", False, "model.family", f"an older form of arch: {family}")


# fmt: off
MODEL = (
    row("model.name_or_path", str, "model.path", "a folder, a single file, or a hub id in the local cache"),
    row("model.arch", str, "model.family", "the kind of model; not given: by the switches below, else SD 1.x"),
    _kind("is_v2", "SD 2.x"),
    _kind("is_xl", "SDXL"),
    _kind("is_v3", "SD3"),
    _kind("is_flux", "FLUX.1"),
    *(row(f"model.is_{name}", False, "model.family", "an older form of arch, of a family that Mezzotint lacks")
      for name in ("pixart", "pixart_sigma", "auraflow", "lumina2", "ssd", "vega")),
    row("model.is_v_pred", False, "model.prediction", "v; without it epsilon, whatever the model's files say"),
    waits("model.use_flux_cfg", False, "guidance in the training loss", "of FLUX"),
    ignored("model.dtype", "float16", "it is train.dtype, as in ai-toolkit"),
    row("model.vae_path", str, "model.vae", "another autoencoder"),
    waits("model.refiner_name_or_path", str, "a refiner in previews", "SDXL's refiner"),
    of("model.refiner_start_at", 0.5, "refiner_name_or_path"),
    waits("model.lora_path", str, "adapters merged before the training", "`mezzotint merge` does it beforehand"),
    row("model.assistant_lora_path", str, "model.under", "a file, or a folder with one: an adapter that is active "
        "while training, and not in previews"),
    waits("model.inference_lora_path", str, ASSISTANTS, "an adapter that is active in previews"),
    waits("model.unconditional_lora_path", str, ASSISTANTS, "an adapter for the unconditional half"),
    waits("model.latent_space_version", str, "other latent spaces", "of another autoencoder"),
    row("model.use_text_encoder_1", True, "model.train", "of SDXL, if text encoders are trained"),
    row("model.use_text_encoder_2", True, "model.train", "of SDXL, if text encoders are trained"),
    waits("model.experimental_xl", False, "SDXL variants", "an experiment"),
    waits("model.text_encoder_bits", 16, "separate types of text encoders", "bits of T5"),
    waits("model.unet_path", str, "denoisers of another model", "put it into the model's folder"),
    waits("model.unet_sample_size", int, "SDXL variants", "of the network"),
    ignored("model.vae_device", str, "parts move to the device when they are needed"),
    row("model.vae_dtype", str, "run.vae_dtype", "not given: as frozen parts"),
    ignored("model.te_device", str, "parts move to the device when they are needed"),
    waits("model.te_dtype", str, "separate types of text encoders", "of text encoders"),
    row("model.quantize", False, "run.frozen_dtype", "frozen weights in 8 or 4 bits; needs the extra low-bit"),
    row("model.quantize_te", bool, "run.frozen_dtype", "text encoders; not given: as quantize"),
    row("model.qtype", "qfloat8", "run.frozen_dtype", "8 bits are int8, 4 bits nf4"),
    row("model.qtype_te", "qfloat8", "run.frozen_dtype", "as qtype"),
    ignored("model.low_vram", False, "weights are loaded directly in their type"),
    waits("model.attn_masking", False, "attention masks of T5", "of FLUX"),
    waits("model.ignore_if_contains", list, "quantization and training of named layers", "layers left as they are"),
    row("model.only_if_contains", list, "model.freeze", "of whole models: only these are trained (unverified)"),
    waits("model.quantize_kwargs.exclude", list, _QUANTIZED, "layers that are not quantized"),
    waits("model.quantize_kwargs.include", list, _QUANTIZED, "layers that are quantized (unverified)"),
    waits("model.split_model_over_gpus", False, "one model over several GPUs", "run.runtime=fsdp shards a model"),
    of("model.split_model_other_module_param_count_scale", 0.3, "split_model_over_gpus"),
    waits("model.te_name_or_path", str, "text encoders of another model", "put it into the model's folder"),
    row("model.auto_memory", False, "run.offload.blocks", _OFFLOAD),
    row("model.layer_offloading", bool, "run.offload.blocks", f"{_OFFLOAD}; not given: auto_memory"),
    row("model.layer_offloading_transformer_percent", 1.0, "run.offload.blocks", "0 streams none", least=0, most=1),
    ignored("model.layer_offloading_text_encoder_percent", 1.0, "text encoders are loaded by layers where needed"),
    ignored("model.extras_name_or_path", str, "a folder has its own text encoders and autoencoder; for a single file "
            "write model.config before the double dash"),
    waits("model.accuracy_recovery_adapter", str, _RECOVERY, "an adapter for quantized weights"),
    row("model.compile", False, "run.compile", "torch.compile, block by block"),
    row("model.block_compile", False, "run.compile", "torch.compile, block by block"),
    ignored("model.compile_mode", "default", "blocks are compiled in the default mode"),
    ignored("model.compile_fullgraph", False, "blocks are compiled as they are"),
    ignored("model.compile_dynamic", True, "each size is compiled"),
    ignored("model.cache_size_limit", int, "torch's own limit"),
    row("model.model_kwargs.train_high_noise", True, "model.train", "of Wan 2.2 A14B: the denoiser of high noise"),
    row("model.model_kwargs.train_low_noise", True, "model.train", "of Wan 2.2 A14B: the denoiser of low noise"),
    ignored("model.model_kwargs.match_target_res", False, "control images always have about the area of the "
            "resolution"),
    waits("model.model_kwargs.edit", False, CONTROL, "of Krea 2, with adapters that were trained to edit"),
    waits("model.model_paths", str, "single files for parts of a model", "its keys", from_json=note_section),
    waits("model.in_context", False, CONTROL, "control images beside the image"),
)

DATASETS = (
    row("folder_path", str, "data.path", "a folder of images with captions beside them"),
    row("dataset_path", str, "data.path", "a folder; JSON files are refused"),
    row("type", "image", "data.path", "image", choices=("image",)),
    row("batch_size", int, "data.batch_size", "of this set, on each process", above=0),
    row("resolution", (512.0,), "data.resolution", "trained at each of them, in buckets"),
    row("num_repeats", 1, "data.repeats", "visits of each image in an epoch", above=0),
    row("is_reg", False, "data.sets", "regularization images: class_images of the set"),
    waits("prior_reg", False, PRESERVATION, "targets from the model without its adapter"),
    row("caption_ext", ".txt", "data.captions.extension", "txt or caption, with or without a dot"),
    row("caption_type", str, "data.captions.extension", "an older name of caption_ext"),
    waits("default_caption", str, "default captions", "the caption of images without a file, which is empty without "
          "it"),
    row("trigger_word", str, "data.captions.trigger data.captions.template", "of this set"),
    row("caption_dropout_rate", 0.0, "data.captions.dropout", "the empty caption", least=0, most=1),
    row("token_dropout_rate", 0.0, "data.captions.tag_dropout", "of each tag after the kept ones", least=0, most=1),
    row("shuffle_tokens", False, "data.captions.shuffle_tags", "the tags after the kept ones, at each visit"),
    row("keep_tokens", 0, "data.captions.keep_tags", "tags that stay in front (unverified)", least=0),
    waits("random_triggers", list, "random triggers", "texts of which one is added"),
    of("random_triggers_max", 1, "random_triggers"),
    waits("use_short_captions", False, SHORT, "captions in two lengths"),
    waits("replacements", list, "replaced words in captions", "pairs of words"),
    row("buckets", True, "data.buckets.shape", "sizes near that of each image, none enlarged; false crops to squares"),
    row("square_crop", False, "data.buckets.shape", "crops to squares"),
    row("bucket_tolerance", 64, "data.buckets.step", "sides are multiples of it", above=0),
    row("random_crop", False, "data.crop", "anywhere instead of the middle"),
    row("flip_x", False, "data.flip", "half of the visits are mirrored; in ai-toolkit, each image is there twice"),
    waits("flip_y", False, _AUGMENTATIONS, "upside down"),
    waits("random_scale", False, _AUGMENTATIONS, "random sizes"),
    waits("scale", 1.0, _AUGMENTATIONS, "a factor of the size"),
    waits("augments", list, _AUGMENTATIONS, "names of transforms"),
    waits("augmentations", str, _AUGMENTATIONS, "transforms of a library", from_json=note_section),
    of("shuffle_augmentations", False, "augmentations"),
    waits("standardize_images", False, _AUGMENTATIONS, "the range of pixels"),
    ignored("replay_transforms", True, "there are no transforms"),
    row("alpha_mask", False, "data.mask.source", "the alpha channel weights the loss"),
    row("mask_path", str, "data.mask.path data.mask.source", "a folder of masks, white counts"),
    waits("invert_mask", False, "inverted masks", "black counts"),
    row("mask_min_value", 0.0, "data.mask.background", "the weight of black, the same for all sets", least=0, most=1),
    row("loss_multiplier", 1.0, "data.sets", "weight of the set", least=0),
    waits("network_weight", 1.0, "adapter strength by data set", "the strength of the adapter"),
    row("cache_latents", False, "data.cache.latents", "for all sets"),
    row("cache_latents_to_disk", False, "data.cache.latents", "for all sets, in Mezzotint's cache"),
    row("cache_text_embeddings", False, "data.cache.text", "for all sets"),
    ignored("cache_tensors_to_disk", False, "decoded images are not kept"),
    ignored("cache_clip_vision_to_disk", False, "what an image encoder sees is cached with the latents"),
    ignored("load_image_when_caching_latents", False, "images are not needed beside their latents"),
    ignored("cache_latents_num_workers", int, "workers are chosen by the machine"),
    ignored("num_workers", 2, "workers are chosen by the machine"),
    ignored("prefetch_factor", 2, "workers are chosen by the machine"),
    ignored("fast_image_size", False, "sizes are read once and kept"),
    ignored("debug", False, "it changes no number of the training"),
    row("num_frames", 1, "data.clips.frames data.format", "above 1: a folder of clips, the same for all sets", above=0),
    row("fps", 24, "data.clips.fps", "of clips that are not shrunk (unverified)"),
    row("shrink_video_to_frames", True, "data.clips.interval", "frames are spread over the clip (unverified)"),
    waits("auto_frame_count", False, "clips of different lengths", "frames by the length of the clip"),
    of("trim_auto_frame_count_tail", True, "auto_frame_count"),
    row("do_i2v", False, "model.wan.first_frame_prob", "first-frame conditioning of Wan 2.2 TI2V 5B; I2V models always "
        "continue the first frame (unverified)"),
    waits("do_audio", False, "audio", "sound of clips"),
    of("audio_preserve_pitch", False, "do_audio"),
    of("audio_normalize", False, "do_audio"),
    waits("poi", str, "crops around a point of interest", "a key of JSON captions"),
    row("control_path", list, "data.conditions", "a folder or several: images of the same names, of FLUX.1 Kontext and "
        "FLUX.2 Klein"),
    *(row(f"control_path_{number}", list, "data.conditions", "as control_path, after it") for number in (1, 2, 3)),
    *(waits(name, str, CONTROL, "control images", from_json=note_section)
      for name in ("inpaint_path", "unconditional_path", "clip_image_path", "clip_image_augmentations", "controls")),
    waits("control_from_same_folder", False, CONTROL, "other images of the folder"),
    of("num_controls_from_same_folder", 1, "control_from_same_folder"),
    ignored("control_transparent_color", tuple, "transparency is filled as in the images, with data.background"),
    waits("full_size_control_images", True, CONTROL, "false resizes them to 512 × 512"),
    waits("clip_image_from_same_folder", False, ADAPTERS, "images for adapters"),
    ignored("clip_image_shuffle_augmentations", False, "there are no images for adapters"),
    ignored("guidance_type", "targeted", "there is no guidance in the loss"),
    of("extra_values", list, "an adapter"),
    waits("diff_output_preservation", False, PRESERVATION, "keeps the output for other prompts"),
    of("diff_output_preservation_class", "", "diff_output_preservation"),
)
# fmt: on
