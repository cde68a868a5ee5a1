"""What a recipe asks for and its writer may not mean: sentences that `check` and the start of a run show. Nothing here
is an error, and nothing is changed."""

from __future__ import annotations

from collections import Counter

from mezzotint.recipe.recipe import Recipe


def notes(recipe: Recipe, *, prediction: str | None, device: str, buckets: int | None) -> list[str]:
    """The sentences, most of the time none.

    recipe: with its paths resolved. prediction: of the model, None where it could not be read. device: "cpu" or "cuda".
    buckets: how many hold pictures, None where the data could not be read.
    """
    found = [
        f"data.path names {folder} {_times(count)}: an epoch visits each of its pictures as often; data.repeats says "
        "that better"
        for folder, count in Counter(path.resolve() for path in recipe.data.path).items()
        if count > 1
    ]
    if recipe.objective.zero_terminal_snr and prediction == "epsilon":
        found.append(
            "objective.zero_terminal_snr with a model that predicts epsilon: the last timestep is pure noise, and the "
            "noise in it teaches nothing; such a schedule is for v-prediction"
        )
    if recipe.run.compile and device == "cpu":
        many = f"each of the {buckets} buckets" if buckets is not None and buckets > 1 else "every size of picture"
        found.append(
            f"run.compile on a CPU: {many} is compiled anew when it is first met, which may take minutes; it pays in "
            "long runs over few buckets"
        )
    if recipe.run.device_memory is not None and device == "cpu":
        found.append(f"run.device_memory={recipe.run.device_memory} caps a GPU's memory, and this run is on the CPU")
    if recipe.data.captions.dropped == "zeros" and recipe.data.captions.dropout == 0.0:
        found.append(
            "data.captions.dropped=zeros with data.captions.dropout=0: only captions that a picture's own chance drops "
            "become zeros"
        )
    if recipe.run.half != "autocast" and recipe.run.precision == "fp32":
        found.append(f"run.half={recipe.run.half} is about bf16 and fp16, and run.precision is fp32")
    return found


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
