"""The flags of MindONE's `train.py` for SDXL, with their defaults there."""

from __future__ import annotations

from dataclasses import replace

from mezzotint.dialects.base import Row, switch
from mezzotint.dialects.mindone_sdxl import _caches
from mezzotint.dialects.shared import timestep_bias

NO_CLOUD = "runs on the machine that it is started on, so copy the files there yourself"
NO_SINK = ("data_sink", "without --data_sink True it has no effect")
NO_CONFIG = "configs/training/sd_xl_base_finetune_lora.yaml"


_MODEL = (
    Row("version", "text", "SDXL-base-1.0", "computed", ("run.export.name",),
        choices=("SDXL-base-1.0", "SDXL-refiner-1.0"), about="the name of what is exported"),
    Row("config", "text", NO_CONFIG, "computed", ("model.family",),
        about="the YAML; a name that is not here is looked for among those that ship"),
    Row("weight", "text", "checkpoints/sd_xl_base_1.0_ms.ckpt", "computed",
        ("model.path", "model.over", "model.weights"), may_be_empty=True,
        about="a .ckpt of MindSpore, a .safetensors file, a folder, or a run to go on with; of several with commas "
        "between the first is the whole model, and the others are laid over it"),
)  # fmt: skip

_CACHE = (
    Row("task", "text", "txt2img", "computed", ("data.cache.path",), choices=("txt2img", "cache"),
        about="cache encodes and does not train"),
    switch("cache_latent", "data.cache.latents", "run.export.trained_file", about="encode pictures once"),
    switch("cache_text_embedding", "data.cache.text", about="encode captions once"),
    Row("cache_path", "text", _caches.DEFAULT, "computed", ("data.cache.path",),
        about="where what is encoded lies"),
)  # fmt: skip

_UPDATE = (
    Row("gradient_accumulation_steps", "whole", 1, "computed", ("optim.accumulation",), above=0,
        about="batches of one step"),
    switch("clip_grad", "optim.clip.norm", "optim.clip.scope",
            about="each tensor on its own; with accumulation all together"),
    Row("max_grad_norm", "number", 1.0, "computed", ("optim.clip.norm",), about="with clip_grad"),
    switch("use_ema", "optim.ema.rule", on="saturating", off="none", fixed={"optim.ema.decay": 0.9999},
            about="0.9999 (1 - exp(-u/2000)) after u steps"),
    Row("per_batch_size", "whole", None, "computed", ("data.batch_size",),
        about="per card there, before data.per_batch_size of the YAML; multiplied by the cards once"),
    switch("scale_lr", "optim.lr", about="the rate times cards, batch and accumulation"),
)  # fmt: skip

_OBJECTIVE = (
    replace(timestep_bias.ROWS[0], default=None, outcome="computed", values={None: "none"}),
    *timestep_bias.ROWS[1:],
    Row("snr_gamma", "number", None, "computed", ("objective.min_snr_gamma", "objective.min_snr_form"),
        fixed={"objective.min_snr_form": "x0"},
        about="clamps the weight of the error of the clean latents; 5.0 is documented"),
)  # fmt: skip

_RUN = (
    Row("seed", "whole", 42, "computed", ("run.seed", "sample.seed"), least=0, about="of every draw"),
    Row("sd_xl_base_ratios", "text", "1.0", "computed", ("sample.size",), about="the size of what is drawn"),
    Row("data_path", "text", "", "computed", ("data.path",), may_be_empty=True,
        about="the folder with .csv files of `dir` and `text`"),
    Row("save_path", "text", "./runs", "computed", ("run.folder",), about="where runs lie"),
    switch("save_path_with_time", "run.folder", default=True, about="each start has a folder with its time"),
    Row("log_interval", "whole", 1, "computed", ("run.log_every",), above=0, unit="steps",
        about="batches between lines of the log"),
    switch("save_ckpt_only_rank_zero", outcome="without effect", about="the first process saves for all"),
    Row("save_ckpt_interval", "whole", 1000, "computed", ("run.save.every", "run.export.every"), above=0, unit="steps",
        about="batches between checkpoints"),
    Row("max_num_ckpt", "whole", None, "computed", ("run.save.keep",), above=0, about="without it all are kept"),
    Row("resume_step", "whole", 0, "computed", ("run.start.step",), least=0, about="goes on after so many batches"),
    Row("optimizer_weight", "text", None, "computed", ("run.start.optimizer",), optional=True,
        about="their optimizer.ckpt"),
    switch("save_optimizer", "run.export.mindspore_optimizer",
            about="their optimizer.ckpt, too; checkpoints hold the optimizer anyway"),
)  # fmt: skip

_SINK = (
    switch("data_sink", "run.device_prefetch", about="batches go to the device ahead of the step"),
    Row("sink_size", "whole", 1000, "without effect", needs=NO_SINK,
        about="it sets how many steps there are between returns to the host there; steps, logs and saves are counted "
        "one by one here, and it has no memory of its own"),
    Row("sink_queue_size", "whole", -1, "computed", ("run.device_prefetch",), needs=NO_SINK,
        about="batches kept ahead on the device; -1 is 10, and fewer need less memory"),
    switch("dataset_load_tokenizer", default=True, outcome="without effect",
            about="tokens are the same wherever they are made"),
    switch("lpw", outcome="refused",
            about="captions of more than 77 tokens are not supported; leave it out, and they are cut"),
    Row("max_embeddings_multiples", "whole", 3, "without effect", about="lpw alone reads it"),
    switch("infer_during_train", "run.preview.every", "sample.prompts", about="draws while training"),
    Row("infer_interval", "whole", 1, "computed", ("run.preview.every",), above=0, about="batches between drawings"),
)  # fmt: skip

_DEVICE = (
    Row("device_target", "text", "Ascend", "computed", ("run.device",), choices=("Ascend", "GPU", "CPU"),
        values={"Ascend": "auto", "GPU": "auto", "CPU": "cpu"},
        about="Ascend and GPU are the accelerator that is found"),
    Row("ms_mode", "whole", 0, "without effect",
        about="compiled or not, the numbers are the same, and nothing is left out in eager mode; run.compile=true "
        "compiles"),
    Row("ms_amp_level", "text", "O2", "computed", ("run.precision", "run.half", "run.frozen_dtype"),
        choices=("O0", "O1", "O2", "O3"), about="O0 is float32, the others are fp16, of more and more"),
    Row("jit_level", "text", "O2", "without effect", choices=("O0", "O1", "O2"), since="2.3.1",
        about="it is the compiler's level, not a precision"),
    switch("ms_enable_graph_kernel", outcome="without effect", about="it changes no numbers"),
    switch("ms_enable_allreduce_fusion", default=True, outcome="without effect",
           about="gradients travel in buckets anyway"),
    Row("dynamic_shape", "switch", False, "without effect", since="2.3.1",
        about="sizes may differ from batch to batch anyway"),
    switch("param_fp16", "run.weight_dtype", about="weights in fp16; not recommended"),
    switch("overflow_still_update", default=True, outcome="without effect",
            about="a step that is not finite never moves weights"),
    Row("max_device_memory", "text", None, "computed", ("run.device_memory",), optional=True,
        about="caps the memory, such as 59GB"),
    switch("is_parallel", "run.runtime",
            about="processes work together, however many the launcher starts; False with several is an error"),
)  # fmt: skip

_CLOUD = (
    switch("enable_modelarts", outcome="without effect", about=NO_CLOUD),
    *(
        Row(flag, "text", default, "without effect", about=NO_CLOUD, may_be_empty=True)
        for flag, default in (
            ("ckpt_url", ""), ("train_url", ""), ("multi_data_url", ""), ("pretrain_url", ""),
            ("ckpt_dir", "/cache/pretrain_ckpt/"),
        )
    ),
)  # fmt: skip

FLAGS = (*_MODEL, *_CACHE, *_UPDATE, *_OBJECTIVE, *_RUN, *_SINK, *_DEVICE, *_CLOUD)
