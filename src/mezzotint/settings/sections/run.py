"""A run: length, device, precision, checkpoints, exports, previews, logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt

from mezzotint import registry
from mezzotint.settings.base import (
    ALLOW,
    FREE,
    MOST_EPOCHS,
    MOST_STEPS,
    NEVER,
    RECORDED,
    AwaitedPath,
    InputPath,
    Interval,
    Located,
    OutputPath,
    PublishedPath,
    Section,
    Share,
    as_list,
)
from mezzotint.settings.sections.saving import ExportSettings, RollBackSettings, SaveSettings

Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
Choice = Literal["auto", True, False]


def is_on(choice: Choice, auto: bool) -> bool:
    """The value of a choice. auto: the value that "auto" stands for."""
    return auto if choice == "auto" else choice


class PreviewSettings(Section):
    """Images generated during training from the prompts of `sample`."""

    every: Annotated[Interval | None, FREE] = None
    """How often previews are generated, step 0 included; null generates none."""

    weights: Annotated[Literal["both", "raw", "ema"], FREE] = "both"
    """The weights that previews use: the trained ones (`raw`), their average (`ema`), or `both`, one row each. Without
    `optim.ema` there are only raw ones."""


class ValidationSettings(Section):
    """The loss on held-out images, at fixed timesteps and noise, which makes its curve smooth."""

    every: Annotated[Interval | None, FREE] = Field(default="100 steps")  # type: ignore[assignment]
    """How often the held-out loss is measured; needs `data.holdout.fraction` above 0, `data.holdout.path` or
    `run.validation.training_fraction`."""

    timesteps: Annotated[int, Field(gt=0, le=1000), FREE] = 4
    """At how many timesteps, evenly spaced over the schedule, each image is measured."""

    training_fraction: Annotated[Share, FREE] = 0.0
    """The fraction of training images, drawn once, whose loss is measured in the same way and logged as `val/train`: a
    training curve without the noise of random timesteps. They are still trained."""


UNRELATED = (
    "a photo of a city street at night",
    "a portrait of an old man with a beard",
    "a bowl of fruit on a wooden table",
    "a mountain lake in the morning",
    "a red car parked in front of a house",
    "a cat sleeping on a sofa",
    "an oil painting of a ship at sea",
    "a woman riding a bicycle in the rain",
    "a cup of coffee and a newspaper",
    "a medieval castle on a hill",
    "a close-up photo of a flower",
    "a robot in a factory, digital art",
)


class DriftSettings(Section):
    """How far the trained model has moved from its base, for prompts with the trigger, with its class word instead, for
    unrelated prompts, with the guidance of `sample.guidance`, and for held-out images: a meter of leaking and
    forgetting. See `docs/guides/preservation.md`."""

    every: Annotated[Interval | None, FREE] = None
    """How often it is measured, before the first step and at the end included; null never measures it. A measurement
    takes one forward pass per prompt and timestep, two with guidance, and for the base once. Full training needs
    `objective.preserve.frozen_copy`."""

    prompts: Annotated[int, Field(gt=0, le=1000), FREE] = 4
    """How many captions with the trigger are measured, the first different ones of the data sets, each also with
    `data.captions.class_word` in its place; if there are fewer, they are repeated with other noise. Also how many
    held-out images of each set, if `run.validation` measures any."""

    unrelated: Annotated[Names, FREE] = UNRELATED
    """Prompts for what the model should not forget. Choose prompts that your model can generate, without the trigger
    and its class, and other ones than `objective.preserve.prompts`."""

    timesteps: Annotated[int, Field(gt=0, le=1000), FREE] = 4
    """At how many timesteps each prompt is measured: those of a sampler with so many steps, on the noisy latents that
    the base itself gets there."""

    warn: Annotated[PositiveFloat | None, FREE] = 0.5
    """The leak, the change for the class as a share of the change for the trigger, from which a warning is printed,
    once until it has been lower. null never warns."""


class RecomputeSettings(Section):
    """Trade time for memory: activations are recomputed in the backward pass instead of being kept."""

    enabled: Annotated[bool, RECORDED] = False
    """About a quarter more arithmetic for a fraction of the activation memory."""

    skip_first: Annotated[NonNegativeInt, RECORDED] = 0
    """How many of the model's blocks, from the first, keep their activations; raise it until memory is full."""

    skip_last: Annotated[NonNegativeInt, RECORDED] = 0
    """The same from the last block, as Open-Sora-Plan's num_no_recompute counts pairs of blocks. The backward pass
    needs these activations first."""


class OffloadSettings(Section):
    """Keep the denoiser's blocks in host memory, and copy each to the device shortly before it is used (layer
    streaming)."""

    blocks: Annotated[PositiveInt | Literal["auto"] | None, RECORDED] = None
    """How many of the denoiser's blocks are on the device at once; with 2, one is copied while another computes. `auto`
    keeps as many as fit by the estimate of `check`, all if they do. Without an adapter, master weights, gradients and
    optimizer states are in host memory, too, and the update is computed there. null keeps all blocks on the device."""


Factor = Annotated[float, Field(gt=1.0, le=16.0)]


class ScalerSettings(Section):
    """The loss scale of fp16, which prevents small gradients from vanishing. No effect in bf16 and fp32."""

    kind: Annotated[Literal["dynamic", "static"], ALLOW] = "dynamic"
    """`dynamic` grows and shrinks as gradients allow; `static` stays at `run.scaler.init`, as MindONE's 1024. A step
    whose gradients overflow is skipped in either case."""

    init: Annotated[PositiveFloat, ALLOW] = 65536.0
    """The initial scale."""

    growth: Annotated[float, Field(gt=1.0, le=16.0), ALLOW] = 2.0
    """The factor by which the scale grows; an overflow divides by it and skips the step."""

    growth_interval: Annotated[PositiveInt, ALLOW] = 2000
    """The scale grows after this many steps without overflow."""

    stages: Annotated[tuple[tuple[NonNegativeInt, Factor, PositiveInt], ...], ALLOW] = ()
    """Other growth factors and intervals from given steps on: triples of (step, growth, growth_interval), such as
    [[500, 1.8, 100], [1000, 1.6, 200]]. Smaller factors late in a run stabilise the scale."""

    def contradictions(self) -> Iterator[str]:
        if any(b[0] <= a[0] for a, b in zip(self.stages, self.stages[1:], strict=False)):
            yield "the steps of run.scaler.stages must increase"


class ShardSettings(Section):
    """How `run.runtime=fsdp` shards a model over processes."""

    parameters: Annotated[bool, RECORDED] = True
    """Shard the weights, too: the weights of a block are gathered for its computation and freed after it, which needs
    the least memory and the most communication. false keeps gathered weights from the forward to the backward pass and
    shards only gradients, optimizer state and average."""

    group: Annotated[PositiveInt | None, RECORDED] = None
    """How many neighbouring processes shard one model; each group holds a full copy, and only gradients are exchanged
    between groups. Must divide the number of processes; usually the processes of one machine. None shards over all."""


class WandbSettings(Section):
    """Curves and previews for Weights & Biases; needs the extra `wandb`. `metrics.jsonl` is written in any case."""

    mode: Annotated[Literal["off", "online", "offline"], FREE] = "off"
    """`online` uploads during the run; `offline` writes to `logs/wandb` of the run folder, for `wandb sync` later."""

    project: Annotated[str, Field(min_length=1), FREE] = "mezzotint"
    """The Weights & Biases project; the run appears in it as `run.name`."""


class ProfileSettings(Section):
    """Traces of a few steps by torch's profiler."""

    steps: Annotated[NonNegativeInt, FREE] = 0
    """How many steps are profiled, after two warm-up steps; 0 profiles none. Profiled steps are slower; their results
    are the same."""

    folder: Annotated[PublishedPath | None, FREE] = None
    """The folder of the traces, one for each process, for chrome://tracing or Perfetto. None is `logs/profile` in the
    run folder."""


class StartSettings(Section):
    """Continue training weights of another program, which `model.path` names: the first step is not step 0."""

    step: Annotated[int, Field(ge=0, le=MOST_STEPS), NEVER] = 0
    """The number of optimizer steps these weights were trained for. Learning rates, data and random draws are those of
    the step after it, and `run.steps` includes these steps. Other state of a run (average, loss scale) starts new."""

    optimizer: Annotated[InputPath | None, NEVER] = None
    """The optimizer state in another program's file, see `run.export.optimizer_file`; state that it lacks starts at
    zero and is reported. Null starts all state at zero."""

    def contradictions(self) -> Iterator[str]:
        if self.optimizer is not None and self.step == 0:
            yield (
                "run.start.optimizer is the state of a run that has started; set run.start.step to its number of steps"
            )


class LiveFileSettings(Section):
    """A file that is read at the start of each epoch and may change a few settings during the run:
    `objective.noise_offset`, `objective.min_snr_gamma`, `model.clip_skip`, `run.save.every`, `run.export.every`,
    `run.export.from_epoch`, `run.export.dtype` and `run.export.single_file_dtype`. Changes are printed and recorded, so
    a resumed run repeats them. Other settings are refused by name, and an invalid file changes nothing."""

    path: Annotated[AwaitedPath | None, FREE] = None
    """The file: a recipe with some of these settings, or a file of another trainer. None reads none."""

    dialect: Annotated[str | None, FREE] = None
    """The format of the file: None is a recipe, otherwise a name of `mezzotint ls dialects`."""

    fixed: Annotated[Names, FREE] = ()
    """Settings that the file cannot change, by path. For an imported command line: those that override it."""

    line: Annotated[tuple[str, ...], FREE] = ()
    """With `dialect`: the command line that the run was started with, which has precedence over the file."""


MOST_LONGER = {"steps": MOST_STEPS, "epochs": MOST_EPOCHS}
FrozenType = Literal["fp32", "same", "bf16", "fp16"]
LowBit = Literal["int8", "nf4"]
GradientSums = Literal["fp32", "same"]


class KernelSettings(Section):
    """GPU kernels. The choices compute the same up to rounding."""

    channels_last: Annotated[Choice, RECORDED] = "auto"
    """Store convolution weights in the channels-last memory format, which tensor cores read. `auto`: on a GPU in bf16
    and fp16 if the model is compiled, because torch's group norm would convert every activation there and back
    otherwise. Not with `run.runtime=fsdp`."""

    cudnn_benchmark: Annotated[Choice, RECORDED] = "auto"
    """Let cuDNN time its kernels for each new convolution shape and use the fastest (`cudnn.benchmark`). `auto`: in
    bf16 and fp16. No effect with `run.deterministic`, because timing may select another kernel at the next start."""

    pad_batches: Annotated[Choice, RECORDED] = "auto"
    """Pad short micro-batches with samples of weight 0, which are computed and ignored, so that a bucket has one shape.
    `auto`: with `run.compile`, which compiles each shape separately."""

    cuda_graphs: Annotated[bool, RECORDED] = False
    """With `run.compile` on a GPU: record the kernels of each block once and launch them together (CUDA graphs). Saves
    host time with small batches, and takes more memory."""

    allocator: Annotated[Literal["expandable", "torch"], FREE] = "expandable"
    """The CUDA memory allocator: `expandable` segments, which lose less memory to fragmentation between buckets of
    different sizes, or the default of `torch`. The environment variable PYTORCH_CUDA_ALLOC_CONF has precedence."""


class RunSettings(Section):
    """Length, device, precision, checkpoints, exports, previews, logs."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"), FREE] = "run"
    """The run's name: letters, digits, dot, hyphen, underscore. Without `run.folder` the run folder is `runs/NAME`."""

    folder: Annotated[OutputPath | None, FREE] = None
    """The run folder, with checkpoints, exports, samples and logs. None uses `runs/NAME` in the current folder. {stamp}
    in its last part is the start time, as in `runs/fox-{stamp}`: every start creates a new folder, unless `run.resume`
    is `auto` or `latest` and one exists, of which the newest is used."""

    linked_folders: Annotated[tuple[PublishedPath, ...], BeforeValidator(as_list), FREE] = ()
    """Folders outside the run folder that `checkpoints`, `exports`, `samples`, `logs` and `requests`, and folders in
    them, may be links to, such as `[/big/exports]`. Links elsewhere outside the run folder are refused. Valid on
    the command line and in your own recipe, not in the recipe.yaml of a run folder, which may come from somebody
    else."""

    seed: Annotated[int, Field(ge=-1, lt=2**63), NEVER] = 0
    """The seed of all random draws: order, crops, captions, noise, timesteps, random weights. -1 draws a seed when a
    run first starts, prints and records it; resuming keeps it."""

    steps: Annotated[Annotated[int, Field(gt=0, le=MOST_STEPS)] | None, ALLOW] = None
    """The length of the run in optimizer steps. Set either this or `run.epochs`; without both a run has 1000 steps."""

    epochs: Annotated[Annotated[float, Field(gt=0.0, le=MOST_EPOCHS)] | None, ALLOW] = None
    """The length of the run in epochs; fractions such as 2.5 are allowed. Converted to steps at the first start,
    printed and recorded."""

    whole_epochs: Annotated[bool, ALLOW] = False
    """End with the last whole epoch within `run.steps` and skip the remaining steps, as Open-Sora-Plan does. Their
    number is printed at the start."""

    extend: Annotated[Interval | None, RECORDED] = None
    """Train this much longer than `run.steps` or `run.epochs`, such as `500 steps` or `2 epochs`: to extend a finished
    run, or one about to finish. It counts from the recipe's length, so repeating the command does not extend the run
    again. Learning rates that depend on the run's length use the new one."""

    device: Annotated[Literal["auto", "cpu", "cuda"], RECORDED] = "auto"
    """The device that computes; `auto` uses the accelerator if there is one."""

    precision: Annotated[Literal["fp32", "bf16", "fp16"], RECORDED] = "fp32"
    """The number type of the arithmetic. bf16 and fp16 run the networks under autocast with float32 gradients and
    updates; fp16 scales the loss. Use bf16 on GPUs that support it."""

    weight_dtype: Annotated[Literal["fp32", "same", "pure"], NEVER] = "fp32"
    """The type of trained weights in the forward pass. `fp32`. `same`: the type of `run.precision`, with float32 master
    weights in the optimizer; less memory traffic, gradients are rounded to that type. `pure`: the same type without
    master weights, optimizer moments included; the least memory, but updates are rounded, so steps smaller than a
    weight's last bit are lost."""

    gradient_dtype: Annotated[Literal["auto", GradientSums], RECORDED] = "auto"
    """With weights in bf16 or fp16: the type in which gradients are summed over micro-batches and processes, float32 or
    the `same` type as the weights, where every addition rounds. float32 takes 2 more bytes per trained parameter.
    `auto` is decided when a run starts: float32 if the memory estimate of `check` fits with 5 % to spare. A resumed run
    keeps its choice."""

    frozen_dtype: Annotated[Literal["auto", FrozenType, LowBit], RECORDED] = "auto"
    """The type of frozen parts (VAE, text encoder, the base model of an adapter): `fp32`, the `same` as
    `run.precision`, or a named one. `auto` is `same`, except that the VAE stays in fp32 with fp16. `int8` and `nf4`
    quantize the matrices of linear layers to 8 or 4 bits (one scale per row; QLoRA's NormalFloat, arXiv:2305.14314) and
    keep the rest, VAE included, in the type of `run.precision`: less memory, but matrices are dequantized at each use.
    They need the extra `low-bit`. Weights are loaded directly in their type."""

    keep_in_fp32: Annotated[bool, RECORDED] = True
    """Keep the modules of a denoiser that diffusers marks as float32 (`_keep_in_fp32_modules`) in float32 and compute
    in it: in frozen denoisers of a smaller type or quantized, and in trained ones. Of the families here Wan has such
    modules: timestep embedding, modulation, norms. false treats them like the rest."""

    vae_dtype: Annotated[FrozenType | None, RECORDED] = None
    """The type of the VAE and of an image encoder, with the choices of `run.frozen_dtype`; null uses that. SDXL's
    original VAE overflows in fp16: keep it in fp32, or use the repaired one (fp16-fix) in `model.vae`."""

    half_precision: Annotated[Literal["autocast", "matmuls", "most", "all"], RECORDED] = "autocast"
    """What runs in bf16 or fp16 in trained networks, if `run.precision` is one of them. `autocast`: torch's autocast
    lists. `matmuls`: only convolutions, linear layers and attention, with results in float32 (MindSpore's O1). `most`:
    everything except norms and SiLU, which compute in float32 and return the smaller type (O2). `all`: norms, too (O3).
    Weights, losses and updates are always float32."""

    micro_batch: Annotated[Annotated[int, Field(gt=0, le=10**6)] | None, RECORDED] = None
    """The most samples a device processes at once; larger shares of a batch are computed in several passes, with the
    same result up to rounding. None processes the whole share."""

    gradient_checkpointing: RecomputeSettings = RecomputeSettings()
    """Recompute activations in the backward pass: less memory for more arithmetic."""

    offload: OffloadSettings = OffloadSettings()
    """Keep blocks of the denoiser in host memory (layer streaming)."""

    compile: Annotated[bool, RECORDED] = False
    """Compile the model block by block with torch.compile: slower to start, faster to run; worthwhile on GPUs and for
    long runs."""

    deterministic: Annotated[bool, RECORDED] = False
    """Use only deterministic kernels and none selected by timing, so a GPU run resumes bitwise identically, too; costs
    speed. On the CPU resuming is always bitwise identical."""

    tf32: Annotated[Choice, RECORDED] = "auto"
    """Let GPUs compute the remaining float32 matrix products with ten mantissa bits (TF32): faster, slightly less
    exact. `auto`: in bf16 and fp16, which have fewer bits themselves. No effect on the CPU."""

    kernels: KernelSettings = KernelSettings()
    """Kernels and memory of a GPU."""

    threads: Annotated[Annotated[int, Field(gt=0, le=4096)] | None, RECORDED] = None
    """Threads of CPU arithmetic; None uses the machine's default. Another number rounds differently."""

    scaler: ScalerSettings = ScalerSettings()
    """The loss scale of fp16."""

    runtime: Annotated[Literal["auto", "single", "ddp", "fsdp"], RECORDED] = "auto"
    """How processes work together: `single`; `ddp`, each process holds the whole model and gradients are summed;
    `fsdp`, processes shard weights, gradients and optimizer state, for models that are too large for one device. `auto`
    is `ddp` for several processes."""

    shard: ShardSettings = ShardSettings()
    """What processes shard with `run.runtime=fsdp`."""

    memory_limit: Annotated[str | None, Field(pattern=r"^\d+(\.\d+)? ?(GB|GiB|MB|MiB)$"), FREE] = None
    """The most GPU memory this process may use, such as `59GB` (10⁹ bytes) or `48GiB` (2³⁰ bytes); a run that needs
    more ends with an out-of-memory error. Null uses all. No effect on the CPU."""

    device_prefetch: Annotated[Annotated[int, Field(ge=0, le=64)] | None, FREE] = None
    """How many batches a thread prepares on the device ahead of the step; each takes memory there. 0 prepares each when
    it is needed. None is 2 on a GPU and with cached latents, and 0 otherwise, where workers decode ahead. Results do
    not depend on it."""

    timeout_seconds: Annotated[int, Field(gt=0, le=10**7), FREE] = 600
    """How long a process waits for its peers before it ends with status 6."""

    start: StartSettings = StartSettings()
    """Continue training weights of another program."""

    resume: Annotated[str, Located("home"), FREE] = "auto"
    """`auto` resumes from the newest checkpoint of the run folder if there is one; `latest` requires one; `never`
    requires a new run; anything else is the path of a checkpoint or run folder to resume from."""

    allow_change: Annotated[Names, FREE] = ()
    """Settings that may differ from the checkpoint's, by path (`optim.lr`); `data` for the content of the data set;
    `code` for callbacks and loss function (`mezzotint.train`). Each change is recorded in the history."""

    max_nonfinite_steps: Annotated[NonNegativeInt, FREE] = 5
    """How many consecutive steps with non-finite values are skipped; one more ends the run with status 3."""

    on_divergence: Annotated[Literal["stop", "roll-back"], RECORDED] = "stop"
    """What happens after too many non-finite steps, or when weights are not finite. `stop` ends the run with status 3.
    `roll-back` continues from the last good checkpoint as `run.roll_back` sets out; the history records it, and a run
    that is killed and resumed repeats it bitwise identically."""

    roll_back: RollBackSettings = RollBackSettings()
    """How `run.on_divergence: roll-back` continues."""

    spike_factor: Annotated[float | None, Field(gt=1.0), FREE] = 10.0
    """Steps whose loss or gradient norm exceeds this multiple of the median of the last 64 steps are written with their
    samples, timesteps and losses to `logs/spikes.rankN.jsonl`. Null switches this off."""

    log_every: Annotated[PositiveInt, FREE] = 1
    """Steps between entries in metrics.jsonl and TensorBoard."""

    profile: ProfileSettings = ProfileSettings()
    """Profiling."""

    schedule_file: Annotated[bool, FREE] = False
    """Write at the start of each epoch which images form which batch to `logs/ep{N}_batch_schedule.txt`, one line per
    image."""

    schedule_place: Annotated[Literal["logs", "run"], FREE] = "logs"
    """The folder of these files: `logs` of the run folder, or the `run` folder itself, which EveryDream2 calls the log
    folder."""

    live: LiveFileSettings = LiveFileSettings()
    """A file that may change a few settings during the run."""

    callbacks: Annotated[dict[str, dict[str, Any]], FREE] = Field(default_factory=dict)
    """Additional callbacks by name, each with its settings, such as `{spikes: {factor: 3}}`. They run between steps,
    and come from other packages or from files in `training/callbacks/`."""

    log_samples: Annotated[bool, FREE] = False
    """Write the samples, timesteps and losses of each step to `logs/samples.rankN.jsonl`."""

    tensorboard: Annotated[bool, FREE] = True
    """Write TensorBoard events to `logs/` of the run folder."""

    wandb: WandbSettings = WandbSettings()
    """Weights & Biases."""

    save: SaveSettings = SaveSettings()
    """Checkpoints."""

    export: ExportSettings = ExportSettings()
    """The trained model for other programs."""

    preview: PreviewSettings = PreviewSettings()
    """Images generated during training."""

    drift: DriftSettings = DriftSettings()
    """A meter of leaking and forgetting."""

    validation: ValidationSettings = ValidationSettings()
    """Held-out loss."""

    @property
    def generates(self) -> bool:
        """Whether the model samples during the run."""
        return self.preview.every is not None or self.drift.every is not None

    @property
    def low_bit(self) -> LowBit | None:
        """The quantization of frozen matrices, None without one."""
        match self.frozen_dtype:
            case "int8" | "nf4":
                return self.frozen_dtype
            case _:
                return None

    def contradictions(self) -> Iterator[str]:
        names = registry.names("training/callbacks") if self.callbacks else ()
        for name in self.callbacks:
            if name not in names:
                yield f"run.callbacks: {registry.unknown_choice('training/callbacks', name)}"
        if self.kernels.cuda_graphs and not self.compile:
            yield "run.kernels.cuda_graphs needs compiled blocks, and run.compile is false; set run.compile=true"
        if self.deterministic and self.kernels.cudnn_benchmark is True:
            yield (
                "run.kernels.cudnn_benchmark selects kernels by timing, and run.deterministic needs the same ones "
                "each time; leave one of them out"
            )
        if self.runtime == "fsdp" and self.kernels.channels_last is True:
            yield (
                "run.kernels.channels_last changes the memory format of weights, and run.runtime=fsdp shards rows; "
                "leave it out, or set run.runtime=ddp"
            )
        if self.extend is not None and self.extend.unit == "minutes":
            yield f"run.extend counts steps or epochs, got '{self.extend}'; write it like '500 steps'"
        elif self.extend is not None and self.extend.count > (most := MOST_LONGER[self.extend.unit]):
            yield f"run.extend is '{self.extend}', longer than allowed; write at most {most:,} {self.extend.unit}"
