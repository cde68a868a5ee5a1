"""What is drawn from a model: previews during training, later the verb `sample`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, field_validator

from mezzotint.recipe.base import FREE, Section, as_list

Texts = Annotated[tuple[str, ...], BeforeValidator(as_list)]


class SampleSettings(Section):
    """Prompts and how pictures are drawn from them. The same prompts and seed for the whole run, so that previews can
    be compared."""

    prompts: Annotated[Texts, FREE] = ()
    """One picture is drawn for each prompt. Empty takes the captions of the first four samples of the data set."""

    negative_prompt: Annotated[str, FREE] = ""
    """What guidance moves away from; usually empty."""

    size: Annotated[tuple[int, int] | None, FREE] = None
    """Width and height in pixels, multiples of 8; None takes `data.resolution` squared."""

    seed: Annotated[int, FREE] = 0
    """The seed of the pictures' noise; picture i is addressed by (seed, i)."""

    steps: Annotated[int, Field(ge=1, le=1000), FREE] = 20
    """Steps of the sampler; more is slower and smoother."""

    guidance: Annotated[NonNegativeFloat, FREE] = 7.5
    """Classifier-free guidance scale; 1 switches it off and halves the work."""

    solver: Annotated[Literal["ddim", "euler", "dpm++"], FREE] = "ddim"
    """The sampler: DDIM (Song et al. 2021), Euler in sigma space (Karras et al. 2022), or DPM-Solver++ (Lu et al.
    2022)."""

    @field_validator("size")
    @classmethod
    def _fits(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and (min(value) < 8 or value[0] % 8 or value[1] % 8):
            raise ValueError(f"sample.size is width and height in multiples of 8, got {value[0]} × {value[1]}")
        return value
