"""Adapters (LoRA and others), trained instead of a model's weights: kind, layers, size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveFloat

from mezzotint.settings.base import ALLOW, FREE, NEVER, InputPath, Section, as_list

Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
_OF_PLAIN_LORA = ("rank_dropout", "module_dropout")
_OF_LORA = ("dropout", "rank_dropout", "module_dropout", "b_lr_ratio", "init")
_OF_LOKR = ("factor", "decompose_both")
_NOT_OF_OFT = (*_OF_LORA, "rank", "alpha", "rank_pattern", "alpha_pattern", "max_norm")
_OF_FILES = ("rank", "alpha", "targets", "rank_pattern", "alpha_pattern", "init", "block_size", *_OF_LOKR)


class AdapterSettings(Section):
    """A small change of some layers that is trained while the model is frozen: a file of some megabytes."""

    kind: Annotated[Literal["none", "lora", "rslora", "dora", "loha", "lokr", "oft"], NEVER] = "none"
    """`none` trains the model's weights. `lora` adds up · down · alpha / rank to each weight (Hu et al.,
    arXiv:2106.09685); `rslora` divides alpha by √rank (arXiv:2312.03732), which keeps large ranks effective; `dora`
    also trains the length of each row (arXiv:2402.09353); `loha` multiplies two such products element by element
    (arXiv:2108.06098), `lokr` is a Kronecker product: a large change in a small file, which diffusers does not read.
    `oft` rotates the inputs of linear layers in blocks (arXiv:2306.07280), which keeps angles and lengths; peft reads
    its file, diffusers does not. Needs the extra `adapters`."""

    rank: Annotated[int, Field(gt=0, le=10**5), NEVER] = 16
    """The inner dimension. A larger one can learn more; file, gradients and optimizer states grow with it."""

    alpha: Annotated[PositiveFloat | None, NEVER] = None
    """The change is multiplied by alpha / rank. None is each layer's rank, a factor of 1. Less acts like a smaller
    learning rate."""

    targets: Annotated[Names, NEVER] = ("attention+mlp",)
    """The layers of trained parts that get an adapter. `attention`: projections of queries, keys, values and outputs,
    as in diffusers' scripts; `attention+mlp`: all layers in attention blocks, as in kohya's; `all-linear`: every linear
    layer; `all`: convolutions, too. Or name patterns with * such as `*attn2.to_k`. A part before a slash limits a
    pattern to it: `[denoiser/attention+mlp, text_encoder/attention]`."""

    rank_pattern: Annotated[dict[str, Annotated[int, Field(gt=0, le=10**5)]], NEVER] = Field(default_factory=dict)
    """Other ranks, by name pattern as in `targets`, such as `{"denoiser/*attn1*": 8}`. The last matching pattern wins;
    one that matches no layer is refused."""

    alpha_pattern: Annotated[dict[str, PositiveFloat], NEVER] = Field(default_factory=dict)
    """Other alphas, by name pattern. The last matching pattern wins."""

    factor: Annotated[int, Field(ge=-1), NEVER] = -1
    """For `lokr`: the size of the smaller of the two matrices; -1 splits each weight as evenly as possible."""

    decompose_both: Annotated[bool, NEVER] = False
    """For `lokr`: the smaller matrix is also a product of rank `rank`, if the rank is below half of its larger side.
    The file gets smaller; useful with a large `factor`."""

    block_size: Annotated[int, Field(ge=2, le=10**5), NEVER] = 32
    """For `oft`, instead of a rank: inputs that are rotated together; where it does not divide the inputs of a layer,
    the nearest number that does. Parameters and file grow with it."""

    dropout: Annotated[Annotated[float, Field(ge=0.0, lt=1.0)], NEVER] = 0.0
    """The dropout probability of an adapter's inputs; for `lora`, `rslora` and `dora`. Drawn by address, so it is the
    same after an interruption and with any number of processes."""

    rank_dropout: Annotated[Annotated[float, Field(ge=0.0, lt=1.0)], NEVER] = 0.0
    """The probability that a sample does not use one of the `rank` inner dimensions of a layer; the others count for
    more (kohya's `rank_dropout`). For `lora` and `rslora`; drawn by address."""

    module_dropout: Annotated[Annotated[float, Field(ge=0.0, lt=1.0)], NEVER] = 0.0
    """The probability that a layer has no adapter for a sample (kohya's `module_dropout`, which draws once for a whole
    batch). For `lora` and `rslora`; drawn by address."""

    b_lr_ratio: Annotated[PositiveFloat, ALLOW] = 1.0
    """LoRA+ (arXiv:2402.12354): the rate of the second factor, B or up, over the rate of the first, which is
    `optim.lr`. 16 is usual, with a lower `optim.lr`. For `lora`, `rslora` and `dora`."""

    init: Annotated[Literal["kaiming", "gaussian", "pissa"], NEVER] = "kaiming"
    """The initial values. One factor is 0, so the model is unchanged at first; the other is uniform in ±1/√(inputs)
    (`kaiming`: peft, kohya) or normal with standard deviation 1/rank (`gaussian`: diffusers' scripts). `pissa` starts
    from the weight's largest singular vectors and subtracts them from the weight in memory (arXiv:2404.02948); its file
    has twice the rank. `loha` and `lokr` start as in LyCORIS."""

    max_norm: Annotated[PositiveFloat | None, NEVER] = None
    """After each step the change of a layer is scaled down to this 2-norm if it is larger (kohya's
    `scale_weight_norms`; 1 is usual). None does not limit it."""

    path: Annotated[InputPath | None, FREE] = None
    """An adapter to continue training, of Mezzotint or another program: .safetensors in diffusers' or kohya's layout, a
    pickled .pt or .ckpt of the same tensors, or a folder with one. Kind, layers, ranks and alphas are those of the
    file; `kind` may be left out. A resumed run reads it again and compares its content."""

    trigger: Annotated[str, FREE] = ""
    """The trigger words of what was trained. They are written into the files, where other programs show them. Empty
    uses `data.captions.trigger`."""

    @property
    def is_trained(self) -> bool:
        """Whether an adapter is trained."""
        return self.kind != "none" or self.path is not None

    def unfit_for(self, kind: str) -> str:
        """The first setting that adapters of this kind do not have, "" if there is none."""
        names = {"dora": _OF_PLAIN_LORA, "loha": _OF_LORA, "lokr": _OF_LORA, "oft": _NOT_OF_OFT}.get(kind, ())
        plain = type(self).model_construct()
        return next((name for name in names if getattr(self, name) != getattr(plain, name)), "")

    def contradictions(self) -> Iterator[str]:
        plain = type(self).model_construct()
        changed = [name for name in type(self).model_fields if getattr(self, name) != getattr(plain, name)]
        if not self.is_trained and changed:
            yield f"model.adapter.{changed[0]} is set, and model.adapter.kind is none; write model.adapter.kind=lora"
        if self.path is not None and (names := [name for name in changed if name in _OF_FILES]):
            yield (
                f"model.adapter.{names[0]} and model.adapter.path are both set, but layers, ranks, alphas and factors "
                "come from the file; leave one of them out, or `mezzotint resize` the file first"
            )
        if name := self.unfit_for(self.kind):
            kinds = "lora and rslora" if name in _OF_PLAIN_LORA else "lora, rslora and dora"
            kinds = kinds if name in _OF_LORA else "other kinds"
            yield f"model.adapter.{name} is for {kinds}, not for {self.kind}; leave it out"
        if self.kind != "lokr" and self.path is None and (names := [name for name in changed if name in _OF_LOKR]):
            yield f"model.adapter.{names[0]} is for lokr; leave it out with {self.kind}"
        if self.kind != "oft" and "block_size" in changed:
            yield "model.adapter.block_size is for oft; write model.adapter.rank, or model.adapter.kind=oft"
        if self.factor == 0:
            yield "model.adapter.factor must be -1, or at least 1, got 0"
        if self.init == "pissa" and (self.kind == "dora" or self.max_norm is not None):
            other = "kind=dora" if self.kind == "dora" else "max_norm"
            yield f"model.adapter.init=pissa changes the weights that model.adapter.{other} depends on; leave one out"
