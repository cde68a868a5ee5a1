"""How a run goes: its length, place, precision, what is saved, shown and watched."""

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
    """What a choice comes to. auto: where it is left open."""
    return auto if choice == "auto" else choice


class PreviewSettings(Section):
    """Pictures drawn during training, from the prompts of `sample`."""

    every: Annotated[Interval | None, FREE] = None
    """How often previews are drawn, step 0 included; null draws none."""

    weights: Annotated[Literal["both", "raw", "ema"], FREE] = "both"
    """Which weights draw: the trained ones (raw), their average (ema), or both, one row each.
    Without `optim.ema` there are only raw ones."""


class ValidationSettings(Section):
    """The loss on held-out pictures, at fixed timesteps and noise, so that its curve can be read."""

    every: Annotated[Interval | None, FREE] = Field(default="100 steps")  # type: ignore[assignment]
    """How often the held-out loss is measured; needs `data.holdout.fraction` above 0, `data.holdout.path` or
    `run.validation.training_fraction`."""

    timesteps: Annotated[int, Field(gt=0, le=1000), FREE] = 4
    """At how many timesteps, evenly spread over the schedule, each picture is measured."""

    training_fraction: Annotated[Share, FREE] = 0.0
    """The share of training pictures, drawn once, whose loss is measured in the same way and logged as `val/train`:
    a training curve without the noise of drawn timesteps. They are trained as before."""


class RecomputeSettings(Section):
    """Trade time for memory: activations are computed again in the backward pass instead of being kept."""

    enabled: Annotated[bool, RECORDED] = False
    """About a quarter more arithmetic for a fraction of the activation memory."""

    skip_first: Annotated[NonNegativeInt, RECORDED] = 0
    """How many of the model's blocks, from the first, keep their activations all the same; raise it until memory is
    full."""

    skip_last: Annotated[NonNegativeInt, RECORDED] = 0
    """The same from the last block on, as Open-Sora-Plan's num_no_recompute counts pairs of blocks. What is kept there
    is needed first in the backward pass."""


class OffloadSettings(Section):
    """Keep the denoiser's blocks in the host's memory, and send each to the device ahead of its use."""

    blocks: Annotated[PositiveInt | Literal["auto"] | None, RECORDED] = None
    """How many of the denoiser's blocks are on the device at once; 2 let one come while another computes. `auto` takes
    as many as fit by the count of `check`, and all where they do. Without an adapter masters, gradients and the
    optimizer's states are the host's as well, and the update is computed there. null keeps all on the device."""


Factor = Annotated[float, Field(gt=1.0, le=16.0)]


class ScalerSettings(Section):
    """The loss scale of fp16, which keeps small gradients from vanishing. Without effect in bf16 and fp32."""

    kind: Annotated[Literal["dynamic", "static"], ALLOW] = "dynamic"
    """`dynamic` grows and shrinks as gradients allow; `static` stays at `run.scaler.init`, as MindONE's 1024. A step
    whose gradients overflow moves nothing either way."""

    init: Annotated[PositiveFloat, ALLOW] = 65536.0
    """The first scale."""

    growth: Annotated[float, Field(gt=1.0, le=16.0), ALLOW] = 2.0
    """The factor by which the scale grows; an overflow divides by it and moves nothing."""

    growth_interval: Annotated[PositiveInt, ALLOW] = 2000
    """After so many steps without overflow the scale grows."""

    stages: Annotated[tuple[tuple[NonNegativeInt, Factor, PositiveInt], ...], ALLOW] = ()
    """From given steps on, another growth and interval: triples of (step, growth, growth_interval), such as [[500, 1.8,
    100], [1000, 1.6, 200]]. Smaller factors late in a run let the scale settle."""

    def contradictions(self) -> Iterator[str]:
        if any(b[0] <= a[0] for a, b in zip(self.stages, self.stages[1:], strict=False)):
            yield "the steps of run.scaler.stages must rise"


class ShardSettings(Section):
    """How `run.runtime=fsdp` shares a model among processes."""

    parameters: Annotated[bool, RECORDED] = True
    """Share the weights, too: each block's are gathered when it computes and let go after it, which takes the least
    memory and the most exchange. false keeps the gathered weights from the forward pass to the backward one and shares
    gradients, optimizer state and average alone."""

    group: Annotated[PositiveInt | None, RECORDED] = None
    """How many neighbouring processes share one model; groups of so many then hold the same, and only gradients
    travel between them. Has to divide the processes; usually those of one machine. None shares among all."""


class WandbSettings(Section):
    """Curves and previews for Weights & Biases; needs the extra `wandb`. `metrics.jsonl` is written in any case."""

    mode: Annotated[Literal["off", "online", "offline"], FREE] = "off"
    """`online` sends while the run goes, `offline` keeps it in `logs/wandb` of the run folder, for `wandb sync`
    later."""

    project: Annotated[str, Field(min_length=1), FREE] = "mezzotint"
    """The project there under which the run appears, by `run.name`."""


class ProfileSettings(Section):
    """Where the time of a few steps goes, as torch's profiler sees it."""

    steps: Annotated[NonNegativeInt, FREE] = 0
    """How many steps are looked at, after two that warm up; the run goes on as it would have. 0 looks at none. Steps
    take longer while they are watched; their results are the same."""

    folder: Annotated[PublishedPath | None, FREE] = None
    """Where the traces lie, one of each process, for chrome://tracing or Perfetto. None is `logs/profile` in the run
    folder."""


class StartSettings(Section):
    """A run that goes on from foreign weights, which `model.path` names: the first step is not step 0."""

    step: Annotated[int, Field(ge=0, le=MOST_STEPS), NEVER] = 0
    """How many optimizer steps lie behind these weights. Rates, data and draws are those of the step after it, and the
    run ends at `run.steps`, these included. What else a run remembers (average, loss scale) begins anew."""

    optimizer: Annotated[InputPath | None, NEVER] = None
    """The optimizer's state from another program's file, see `run.export.optimizer_file`; what is not in it begins at
    zero and is named. Null begins all of it at zero."""

    def contradictions(self) -> Iterator[str]:
        if self.optimizer is not None and self.step == 0:
            yield (
                "run.start.optimizer are moments of a run that has begun; write after how many steps in run.start.step"
            )


class LiveFileSettings(Section):
    """A file that is read at the start of each epoch and may change a few settings while the run goes:
    `objective.noise_offset`, `objective.min_snr_gamma`, `model.clip_skip`, `run.save.every`, `run.export.every`,
    `run.export.from_epoch`, `run.export.dtype` and `run.export.single_file_dtype`. What changes is said and recorded,
    so that going on repeats it; the rest is refused by name, and a broken file changes nothing."""

    path: Annotated[AwaitedPath | None, FREE] = None
    """The file: a recipe with some of these settings, or the file of another trainer. None reads none."""

    dialect: Annotated[str | None, FREE] = None
    """How the file is written: None is a recipe of ours, else a name of `mezzotint ls dialects`."""

    fixed: Annotated[Names, FREE] = ()
    """Settings that the file does not change, by path. Of a foreign line, those that were laid over it."""

    line: Annotated[tuple[str, ...], FREE] = ()
    """With `dialect`: the words of the command line that the run was started with, which count before the file."""


MOST_LONGER = {"steps": MOST_STEPS, "epochs": MOST_EPOCHS}
FrozenType = Literal["fp32", "same", "bf16", "fp16"]
LowBit = Literal["int8", "nf4"]
GradientSums = Literal["fp32", "same"]


class KernelSettings(Section):
    """Which kernels a GPU takes. They compute the same up to rounding."""

    channels_last: Annotated[Choice, RECORDED] = "auto"
    """Keep the weights of convolutions with a pixel's channels side by side, as tensor cores read them. `auto` does so
    on a GPU in bf16 and fp16 where the model is compiled: torch's own group norm would turn each picture round and back
    again. Not with `run.runtime=fsdp`."""

    cudnn_benchmark: Annotated[Choice, RECORDED] = "auto"
    """Let cuDNN try its kernels for each new shape of a convolution and take the fastest (`cudnn.benchmark`). `auto`
    does so in bf16 and fp16. Without effect under `run.deterministic`: what is chosen by time may be another kernel at
    the next start."""

    pad_batches: Annotated[Choice, RECORDED] = "auto"
    """Fill short micro-batches up with samples of weight 0, which are computed and count nowhere, so that a bucket has
    one shape. `auto` does so with `run.compile`, which compiles each shape anew."""

    cuda_graphs: Annotated[bool, RECORDED] = False
    """With `run.compile` on a GPU: record the kernels of each block once and launch them as one (CUDA graphs). Saves
    the host's time where batches are small, and takes more memory."""

    allocator: Annotated[Literal["expandable", "torch"], FREE] = "expandable"
    """How torch deals out the memory of a GPU: in `expandable` segments, of which less is lost between buckets of
    different sizes, or as `torch` does by itself. What the environment says in PYTORCH_CUDA_ALLOC_CONF counts before
    it."""


class RunSettings(Section):
    """Length, place, precision, saving, showing."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"), FREE] = "run"
    """The run's name: letters, digits, dot, hyphen, underscore. Without `run.folder` the run lies in `runs/NAME`."""

    folder: Annotated[OutputPath | None, FREE] = None
    """The run folder; checkpoints, exports, samples and logs lie in it. None makes it `runs/NAME` in the current
    folder. {stamp} in its last part is the time of the start, as in `runs/fox-{stamp}`: every start makes a folder of
    its own, unless `run.resume` is `auto` or `latest` and there is one, of which the newest counts."""

    linked_folders: Annotated[tuple[PublishedPath, ...], BeforeValidator(as_list), FREE] = ()
    """Folders elsewhere that `checkpoints`, `exports`, `samples`, `logs` and `requests` of the run folder, and folders
    in them, may be links to, such as `[/big/exports]`. A link to any other place outside of the run folder is refused.
    It counts on the command line and in a recipe of your own, not in the recipe.yaml of a run folder, which may be a
    stranger's."""

    seed: Annotated[int, Field(ge=-1, lt=2**63), NEVER] = 0
    """The seed of every draw: order, crops, captions, noise, timesteps, random weights. -1 draws one when a run first
    starts, prints and records it; going on keeps it."""

    steps: Annotated[Annotated[int, Field(gt=0, le=MOST_STEPS)] | None, ALLOW] = None
    """The run's length in optimizer steps. Either this or `run.epochs`; without both a run has 1000 steps."""

    epochs: Annotated[Annotated[float, Field(gt=0.0, le=MOST_EPOCHS)] | None, ALLOW] = None
    """The run's length in epochs; 2.5 is possible. Resolved into steps from the data set at the first start, printed
    and recorded."""

    whole_epochs: Annotated[bool, ALLOW] = False
    """End with the last whole epoch within `run.steps`, and leave out the steps beyond it, as Open-Sora-Plan does. How
    many are left out is said at the start."""

    extend: Annotated[Interval | None, RECORDED] = None
    """Train so much longer than `run.steps` or `run.epochs` says, such as `500 steps` or `2 epochs`: for a run that is
    over, or would be too early. It counts from the recipe's length, so that the same line given again is not longer
    again. Rates that depend on the run's length follow the new one."""

    device: Annotated[Literal["auto", "cpu", "cuda"], RECORDED] = "auto"
    """Where the run computes; `auto` takes the accelerator when there is one."""

    precision: Annotated[Literal["fp32", "bf16", "fp16"], RECORDED] = "fp32"
    """The type of the arithmetic. bf16 and fp16 run the networks under autocast with float32 gradients and updates;
    fp16 scales the loss. bf16 is the choice on GPUs that have it."""

    weight_dtype: Annotated[Literal["fp32", "same", "pure"], NEVER] = "fp32"
    """How trained weights are kept for the forward pass: `fp32`, or the `same` type as `run.precision`, with float32
    masters in the optimizer: less memory traffic per step, gradients rounded to that type. `pure` is the same type
    without masters, moments in it as well: the least memory, and updates that are rounded to it, so that steps smaller
    than a weight's last bit are lost."""

    gradient_dtype: Annotated[Literal["auto", GradientSums], RECORDED] = "auto"
    """With weights in bf16 or fp16: whether gradients are summed over micro-batches and processes in float32, or in the
    `same` type as the weights, where every addition rounds to it. float32 takes 2 bytes more a trained number. `auto`
    settles it when a run starts: float32 where memory has room by the count of `check`, with 5 % to spare. A run that
    goes on keeps its own."""

    frozen_dtype: Annotated[Literal["auto", FrozenType, LowBit], RECORDED] = "auto"
    """The type of frozen parts (VAE, text encoder, the model beneath an adapter): `fp32`, the `same` as
    `run.precision`, or one that is named. `auto` is `same`, but for the VAE in fp16, which stays in fp32. `int8` and
    `nf4` keep the matrices of linear layers in 8 or 4 bits (one scale
    a row; QLoRA's NormalFloat, arXiv:2305.14314) and the rest, the VAE too, in that of `run.precision`: less memory,
    and each use makes the matrix again. They need the extra `low-bit`. Weights are read straight into their type."""

    keep_in_fp32: Annotated[bool, RECORDED] = True
    """Whether modules of a frozen denoiser that diffusers keeps in float32 stay so where the rest is in a smaller type
    or in few bits, and compute in it; of trained ones, whose weights are float32, that they compute in it. Of the
    families here Wan has such: what embeds the timestep, modulation, norms. false holds them like the rest."""

    vae_dtype: Annotated[FrozenType | None, RECORDED] = None
    """The type of the VAE alone, in the same words; null takes `run.frozen_dtype`. SDXL's own
    VAE overflows in fp16: leave it in fp32, or name the repaired one (fp16-fix) in `model.vae`."""

    half_precision: Annotated[Literal["autocast", "matmuls", "most", "all"], RECORDED] = "autocast"
    """What of the trained networks runs in bf16 or fp16, when `run.precision` is one of them. `autocast`: what torch's
    lists say. `matmuls`: convolutions, linear layers and attention alone, their results float32 again (MindSpore's
    O1). `most`: everything but norms and SiLU, which compute in float32 and hand on the smaller type (O2). `all`: norms
    as well (O3). Weights, losses and updates are float32 in any case."""

    micro_batch: Annotated[Annotated[int, Field(gt=0, le=10**6)] | None, RECORDED] = None
    """The most samples a device holds at once; larger shares of a batch are computed in several passes with the same
    result up to rounding. None holds the whole share."""

    gradient_checkpointing: RecomputeSettings = RecomputeSettings()
    """Less memory for more arithmetic."""

    offload: OffloadSettings = OffloadSettings()
    """Blocks whose weights wait in the host's memory."""

    compile: Annotated[bool, RECORDED] = False
    """Compile the model block by block with torch.compile: slower to start, faster to run; worth it on GPUs and long
    runs."""

    deterministic: Annotated[bool, RECORDED] = False
    """Only deterministic kernels, and none that are chosen by their time, so that a GPU run resumes to the bit too;
    costs speed. On the CPU runs resume to the bit anyway."""

    tf32: Annotated[Choice, RECORDED] = "auto"
    """Let GPUs compute what is left of float32 products with ten bits of mantissa (TF32): faster, slightly less exact.
    `auto` does so in bf16 and fp16, which have fewer bits themselves. Without effect on the CPU."""

    kernels: KernelSettings = KernelSettings()
    """Kernels and memory of a GPU."""

    threads: Annotated[Annotated[int, Field(gt=0, le=4096)] | None, RECORDED] = None
    """Threads of CPU arithmetic; None takes the machine's. Another number rounds differently."""

    scaler: ScalerSettings = ScalerSettings()
    """The loss scale of fp16."""

    runtime: Annotated[Literal["auto", "single", "ddp", "fsdp"], RECORDED] = "auto"
    """How processes work together: `single`; `ddp`, each holds the whole model and gradients are summed; `fsdp`, they
    share weights, gradients and optimizer state among them, for models that are too large for one device. `auto` is
    `ddp` for several processes."""

    shard: ShardSettings = ShardSettings()
    """What processes share among them under `run.runtime=fsdp`."""

    memory_limit: Annotated[str | None, Field(pattern=r"^\d+(\.\d+)? ?(GB|GiB|MB|MiB)$"), FREE] = None
    """The most memory that this process takes of its GPU, such as `59GB` (10⁹ bytes) or `48GiB` (2³⁰ bytes): beyond it
    the run ends for want of memory. Null takes what there is. Without effect on the CPU."""

    device_prefetch: Annotated[Annotated[int, Field(ge=0, le=64)] | None, FREE] = None
    """How many batches are made ready ahead of the step, on the device, by a thread; each takes its memory there. 0
    makes each when it is needed. None is 2 on a GPU and where latents are cached, whose rows are read ahead by it,
    and 0 elsewhere, where workers decode ahead. Draws and results do not depend on it."""

    timeout_seconds: Annotated[int, Field(gt=0, le=10**7), FREE] = 600
    """How long a process waits for its peers before it ends with status 6."""

    start: StartSettings = StartSettings()
    """Going on from foreign weights."""

    resume: Annotated[str, Located("home"), FREE] = "auto"
    """`auto` goes on from the newest checkpoint of the run folder if there is one; `latest` insists on one; `never`
    insists on a new run; anything else is the path of a checkpoint or run folder to go on from."""

    allow_change: Annotated[Names, FREE] = ()
    """Settings that may differ from those of the checkpoint, by path (`optim.lr`) or `data` for the data set's
    content, `code` for callbacks and loss function (`mezzotint.train`). Each is recorded in the history."""

    max_nonfinite_steps: Annotated[NonNegativeInt, FREE] = 5
    """Steps with non-finite values in a row that are skipped; one more ends the run with status 3."""

    on_divergence: Annotated[Literal["stop", "roll-back"], RECORDED] = "stop"
    """What becomes of a run with too many steps that are not finite, or spoilt weights: `stop` ends it with status 3.
    `roll-back` goes on from the last good checkpoint, as `run.roll_back` says; the history tells it, and a run that is
    killed and gone on with does the same to the bit."""

    roll_back: RollBackSettings = RollBackSettings()
    """How `run.on_divergence: roll-back` goes on."""

    spike_factor: Annotated[float | None, Field(gt=1.0), FREE] = 10.0
    """A step whose loss or gradient norm is above so many times the median of the 64 before it is written with its
    samples, timesteps and losses into `logs/spikes.rankN.jsonl`. Null watches none."""

    log_every: Annotated[PositiveInt, FREE] = 1
    """Steps between lines of metrics.jsonl and TensorBoard."""

    profile: ProfileSettings = ProfileSettings()
    """A look at where the time goes."""

    schedule_file: Annotated[bool, FREE] = False
    """Write at the start of each epoch which pictures make which batch, in `logs/ep{N}_batch_schedule.txt`: a line a
    picture."""

    schedule_place: Annotated[Literal["logs", "run"], FREE] = "logs"
    """Where those files lie: in the run folder's `logs`, or in the `run` folder itself, which EveryDream2 calls the log
    folder."""

    live: LiveFileSettings = LiveFileSettings()
    """A file that may change a few settings while the run goes."""

    callbacks: Annotated[dict[str, dict[str, Any]], FREE] = Field(default_factory=dict)
    """Further callbacks by name, which have no section of their own, each with its settings, such as `{spikes: {factor:
    3}}`. They happen between steps, and come with another package or a file in `training/callbacks/`."""

    log_samples: Annotated[bool, FREE] = False
    """Write which samples, timesteps and losses made each step into `logs/samples.rankN.jsonl`."""

    tensorboard: Annotated[bool, FREE] = True
    """Write TensorBoard events into `logs/` of the run folder."""

    wandb: WandbSettings = WandbSettings()
    """Weights & Biases."""

    save: SaveSettings = SaveSettings()
    """Checkpoints."""

    export: ExportSettings = ExportSettings()
    """The model for others."""

    preview: PreviewSettings = PreviewSettings()
    """Pictures during training."""

    validation: ValidationSettings = ValidationSettings()
    """Held-out loss."""

    @property
    def low_bit(self) -> LowBit | None:
        """How matrices of frozen parts are kept, where not in the type of the rest."""
        match self.frozen_dtype:
            case "int8" | "nf4":
                return self.frozen_dtype
            case _:
                return None

    def contradictions(self) -> Iterator[str]:
        known = registry.names("training/callbacks") if self.callbacks else ()
        for name in self.callbacks:
            if name not in known:
                yield f"run.callbacks: {registry.unknown('training/callbacks', name)}"
        if self.kernels.cuda_graphs and not self.compile:
            yield "run.kernels.cuda_graphs records compiled blocks, and run.compile is false; set run.compile=true"
        if self.deterministic and self.kernels.cudnn_benchmark is True:
            yield (
                "run.kernels.cudnn_benchmark chooses kernels by their time, and run.deterministic wants the same ones "
                "each time; leave one of them out"
            )
        if self.runtime == "fsdp" and self.kernels.channels_last is True:
            yield (
                "run.kernels.channels_last lays weights out in another order, and run.runtime=fsdp shares out rows; "
                "leave it out, or take run.runtime=ddp"
            )
        if self.extend is not None and self.extend.unit == "minutes":
            yield f"run.extend counts steps or epochs, got '{self.extend}'; write it like '500 steps'"
        elif self.extend is not None and self.extend.count > (most := MOST_LONGER[self.extend.unit]):
            yield f"run.extend is '{self.extend}', more than a run can have; write at most {most:,} {self.extend.unit}"
