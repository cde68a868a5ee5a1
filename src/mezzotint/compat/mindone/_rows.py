"""The flags of MindONE's `train.py` for SDXL, with its defaults."""

from __future__ import annotations

from dataclasses import replace

from mezzotint.compat.kit import timestep_bias
from mezzotint.compat.kit.dialect import ignored, refused, row

CACHE = "./cache_data"
"""The default folder of a cache."""
WEIGHT = "checkpoints/sd_xl_base_1.0_ms.ckpt"
NO_CLOUD = "runs on the local machine; copy the files to it yourself"
NO_SINK = ("data_sink", "without --data_sink True it has no effect")
NO_CONFIG = "configs/training/sd_xl_base_finetune_lora.yaml"


_MODEL = (
    row("version", "SDXL-base-1.0", "run.export.name", "the name of exported models",
        choices=("SDXL-base-1.0", "SDXL-refiner-1.0")),
    row("config", NO_CONFIG, "model.family", "the YAML file; if it does not exist, the shipped file of that name"),
    row("weight", WEIGHT, "model.path model.over model.weights",
        "a .ckpt of MindSpore, a .safetensors file, a folder, or a run to resume; of several, separated by commas, "
        "the first is the whole model, and the others replace tensors of it", may_be_empty=True),
)  # fmt: skip

_CACHE = (
    row("task", "txt2img", "data.cache.path", "cache encodes and does not train", choices=("txt2img", "cache")),
    row("cache_latent", False, "data.cache.latents run.export.trained_file", "encode images once"),
    row("cache_text_embedding", False, "data.cache.text", "encode captions once"),
    row("cache_path", CACHE, "data.cache.path", "the folder of the cache"),
)  # fmt: skip

_UPDATE = (
    row("gradient_accumulation_steps", 1, "optim.accumulation", "batches of one step", above=0),
    row("clip_grad", False, "optim.clip.norm optim.clip.scope",
        "each tensor separately; with accumulation all together"),
    row("max_grad_norm", 1.0, "optim.clip.norm", "with clip_grad"),
    row("use_ema", False, "optim.ema.rule", "0.9999 (1 - exp(-u/2000)) after u steps", on="saturating", off="none",
        fixed={"optim.ema.decay": 0.9999}),
    row("per_batch_size", int, "data.batch_size",
        "per card in MindONE, overrides data.per_batch_size of the YAML; multiplied by the cards once"),
    row("scale_lr", False, "optim.lr", "the rate times cards, batch and accumulation"),
)  # fmt: skip

_OBJECTIVE = (
    replace(timestep_bias.ROWS[0], default=None, outcome="computed", values={None: "none"}),
    *timestep_bias.ROWS[1:],
    row("snr_gamma", float, "objective.min_snr_gamma objective.min_snr_form",
        "clamps the weight of the error of the clean latents; 5.0 is documented",
        fixed={"objective.min_snr_form": "x0"}),
)  # fmt: skip

_RUN = (
    row("seed", 42, "run.seed sample.seed", "of all random numbers", least=0),
    row("sd_xl_base_ratios", "1.0", "sample.size", "the size of samples"),
    row("data_path", "", "data.path", "the folder with .csv files of `dir` and `text`", may_be_empty=True),
    row("save_path", "./runs", "run.folder", "the folder of runs"),
    row("save_path_with_time", True, "run.folder", "each start has its own folder, named by its time"),
    row("log_interval", 1, "run.log_every", "batches between lines of the log", above=0, unit="steps"),
    ignored("save_ckpt_only_rank_zero", False, "the first process saves for all"),
    row("save_ckpt_interval", 1000, "run.save.every run.export.every", "batches between checkpoints", above=0,
        unit="steps"),
    row("max_num_ckpt", int, "run.save.keep", "by default all are kept", above=0),
    row("resume_step", 0, "run.start.step", "resumes after so many batches", least=0),
    row("optimizer_weight", str, "run.start.optimizer", "MindONE's optimizer.ckpt", optional=True),
    row("save_optimizer", False, "run.export.optimizer_file",
        "also writes MindONE's optimizer.ckpt; checkpoints contain the optimizer anyway", on="mindone", off=None),
)  # fmt: skip

_SINK = (
    row("data_sink", False, "run.device_prefetch", "batches go to the device ahead of the step"),
    ignored("sink_size", 1000, "it sets the number of steps between returns to the host in MindONE; Mezzotint "
        "counts single steps, logs and saves", needs=NO_SINK),
    row("sink_queue_size", -1, "run.device_prefetch",
        "batches kept ahead on the device; -1 is 10, and fewer need less memory", form="whole", needs=NO_SINK),
    ignored("dataset_load_tokenizer", True, "tokens are the same in any case"),
    refused("lpw", False, "captions of more than 77 tokens are not supported; leave it out to truncate them"),
    ignored("max_embeddings_multiples", 3, "it is only used by lpw"),
    row("infer_during_train", False, "run.preview.every sample.prompts", "samples during training"),
    row("infer_interval", 1, "run.preview.every", "batches between samples", above=0),
)  # fmt: skip

_DEVICE = (
    row("device_target", "Ascend", "run.device", "Ascend and GPU mean the available accelerator",
        choices=("Ascend", "GPU", "CPU"), values={"Ascend": "auto", "GPU": "auto", "CPU": "cpu"}),
    ignored("ms_mode", 0,
        "results do not depend on it, and eager mode supports all options; run.compile=true compiles"),
    row("ms_amp_level", "O2", "run.precision run.half_precision run.frozen_dtype",
        "O0 is float32, the others use fp16, increasingly", choices=("O0", "O1", "O2", "O3")),
    ignored("jit_level", "O2", "it is the compiler's level, not a precision", choices=("O0", "O1", "O2"),
        since="2.3.1"),
    ignored("ms_enable_graph_kernel", False, "it does not change results"),
    ignored("ms_enable_allreduce_fusion", True, "gradients are reduced in buckets anyway"),
    ignored("dynamic_shape", False, "sizes may differ from batch to batch anyway", since="2.3.1"),
    row("param_fp16", False, "run.weight_dtype", "weights in fp16; not recommended"),
    ignored("overflow_still_update", True, "a non-finite step never changes weights"),
    row("max_device_memory", str, "run.memory_limit", "limits the memory, such as 59GB", optional=True),
    row("is_parallel", False, "run.runtime",
        "processes always train together; False with several processes is an error"),
)  # fmt: skip

_CLOUD = (
    ignored("enable_modelarts", False, NO_CLOUD),
    *(
        ignored(flag, default, NO_CLOUD, may_be_empty=True)
        for flag, default in (
            ("ckpt_url", ""), ("train_url", ""), ("multi_data_url", ""), ("pretrain_url", ""),
            ("ckpt_dir", "/cache/pretrain_ckpt/"),
        )
    ),
)  # fmt: skip

FLAGS = (*_MODEL, *_CACHE, *_UPDATE, *_OBJECTIVE, *_RUN, *_SINK, *_DEVICE, *_CLOUD)
