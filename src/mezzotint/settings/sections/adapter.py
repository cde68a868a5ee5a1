"""What is trained in the place of a model's own weights: an adapter (LoRA and its kin), of which layers, how large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveFloat

from mezzotint.settings.base import FREE, NEVER, InputPath, Section, as_list

Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
_OF_LOKR = ("factor", "decompose_both")
_OF_FILES = ("rank", "alpha", "targets", "rank_pattern", "alpha_pattern", "init", *_OF_LOKR)


class AdapterSettings(Section):
    """A small change of layers that is trained while the model stays as it is: a file of some megabytes."""

    kind: Annotated[Literal["none", "lora", "rslora", "dora", "loha", "lokr"], NEVER] = "none"
    """`none` trains the model's own weights. `lora` adds up · down · alpha / rank to each weight (Hu et al.,
    arXiv:2106.09685); `rslora` divides alpha by √rank (arXiv:2312.03732), which keeps large ranks alive; `dora` trains
    the length of each row besides (arXiv:2402.09353); `loha` multiplies two such products element by element
    (arXiv:2108.06098), `lokr` is a Kronecker product: much change in a small file, which diffusers does not read. Needs
    the extra `adapters`."""

    rank: Annotated[int, Field(gt=0, le=10**5), NEVER] = 16
    """The inner dimension. A larger one can learn more; file, gradients and optimizer states grow with it."""

    alpha: Annotated[PositiveFloat | None, NEVER] = None
    """Strength in multiples of the rank: the change is multiplied by alpha / rank. None is each layer's rank, so that
    it is 1. Less has the effect of a smaller rate."""

    targets: Annotated[Names, NEVER] = ("attention+mlp",)
    """Which layers of the trained parts get one. `attention`: projections to and from queries, keys, values, as
    diffusers' scripts; `attention+mlp`: all in attention blocks, as kohya's; `all-linear`: every matrix; `all`:
    convolutions too. Or patterns of names with * such as `*attn2.to_k`. A part before a slash limits it:
    `[denoiser/attention+mlp, text_encoder/attention]`."""

    rank_pattern: Annotated[dict[str, Annotated[int, Field(gt=0, le=10**5)]], NEVER] = Field(default_factory=dict)
    """Other ranks, by pattern of names as in `targets`, such as `{"denoiser/*attn1*": 8}`. The last that fits holds;
    one that fits no layer is refused."""

    alpha_pattern: Annotated[dict[str, PositiveFloat], NEVER] = Field(default_factory=dict)
    """Other alphas, by pattern of names. The last that fits holds."""

    factor: Annotated[int, Field(ge=-1), NEVER] = -1
    """Of `lokr`: the size of the smaller of the two matrices; -1 splits each weight as evenly as can be."""

    decompose_both: Annotated[bool, NEVER] = False
    """Of `lokr`: the smaller of the two matrices is a product of rank `rank` as well, where the rank is below half of
    its larger side. The file gets smaller; it pays where `factor` is large."""

    dropout: Annotated[Annotated[float, Field(ge=0.0, lt=1.0)], NEVER] = 0.0
    """The chance that a number on its way into an adapter is taken as 0, the others made larger for it; of `lora`,
    `rslora` and `dora`. Drawn by address, so that it is the same after an interruption and on any number of
    processes."""

    init: Annotated[Literal["kaiming", "gaussian", "pissa"], NEVER] = "kaiming"
    """What training begins with. One factor is 0, so that the model is itself at first; the other has even numbers in
    ±1/√(inputs) (`kaiming`: peft, kohya) or normal ones of deviation 1/rank (`gaussian`: diffusers' scripts). `pissa`
    begins with the weight's own largest singular vectors and takes them out of the weight in memory (arXiv:2404.02948);
    its file has twice the rank. `loha` and `lokr` begin as LyCORIS' do."""

    max_norm: Annotated[PositiveFloat | None, NEVER] = None
    """After each step the change of a layer is scaled back to this 2-norm where it is longer (kohya's
    `scale_weight_norms`; 1 is usual). None leaves it."""

    path: Annotated[InputPath | None, FREE] = None
    """An adapter to go on from, of ours or of another program: .safetensors in diffusers' or kohya's layout, a pickled
    .pt or .ckpt of the same tensors, or a folder with one. Kind, layers, ranks and alphas are its own; `kind` may be
    left out. A run that goes on reads it again and knows it by its content."""

    trigger: Annotated[str, FREE] = ""
    """The word or words that call up what was trained. They are written into the files, where picture programs show
    them. Empty takes those of `data.captions.trigger`."""

    @property
    def is_trained(self) -> bool:
        """Whether there is one."""
        return self.kind != "none" or self.path is not None

    def contradictions(self) -> Iterator[str]:
        plain = type(self).model_construct()
        changed = [name for name in type(self).model_fields if getattr(self, name) != getattr(plain, name)]
        if not self.is_trained and changed:
            yield f"model.adapter.{changed[0]} is set, and model.adapter.kind is none; write model.adapter.kind=lora"
        if self.path is not None and (odd := [name for name in changed if name in _OF_FILES]):
            yield (
                f"model.adapter.{odd[0]} and model.adapter.path are both set, but layers, ranks, alphas and factors "
                "come from the file; leave one of them out, or `mezzotint resize` the file first"
            )
        if self.kind in ("loha", "lokr") and (odd := [name for name in changed if name in ("dropout", "init")]):
            yield f"model.adapter.{odd[0]} is for lora, rslora and dora; {self.kind} has none, leave it out"
        if self.kind != "lokr" and self.path is None and (odd := [name for name in changed if name in _OF_LOKR]):
            yield f"model.adapter.{odd[0]} is for lokr; leave it out with {self.kind}"
        if self.factor == 0:
            yield "model.adapter.factor is -1, or 1 and more"
        if self.init == "pissa" and (self.kind == "dora" or self.max_norm is not None):
            other = "kind=dora" if self.kind == "dora" else "max_norm"
            yield f"model.adapter.init=pissa changes the weights that model.adapter.{other} goes by; leave one out"
