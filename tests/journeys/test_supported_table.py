"""docs/reference/support.md: each cell is shown by a test. Tests that no other file has are here: each model and data
format with each command."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from datasets.packaged_modules.parquet.parquet import Parquet
from safetensors.torch import load_file, save_file

from mezzotint.cli import main
from mezzotint.settings.reference import error_codes
from mezzotint.weights.layouts.sd import LAYOUT
from support import supported_table
from support.run_folders import logged
from support.supported_table import CAPTIONS, draw, require_checked_cached_and_trained, table, words

here = supported_table.here
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "support.md"
HERE = "tests/journeys/test_supported_table.py"
ONE_FILE = f"{HERE}::test_each_model_format_is_checked_trained_and_sampled"
DREAMS = "tests/compat/everydream2/test_supported_forms.py::test_everydream_data_are_checked_cached_and_trained"
DATA = f"{HERE}::test_each_data_format_is_checked_cached_and_trained"
LINE = "tests/compat/diffusers_scripts/journeys/test_diffusers_command.py"
XL_LINE = "tests/compat/diffusers_scripts/journeys/test_diffusers_sdxl_command.py"
FLOW_LINES = "tests/compat/diffusers_scripts/journeys/test_diffusers_flow_commands.py"
EVERYDREAM = "tests/compat/everydream2/test_everydream_command.py"
MINDONE_LINE = "tests/compat/mindone/test_mindone_command.py"
SORA_LINE = "tests/compat/open_sora_plan/test_open_sora_command.py"
CONVERT = "tests/tasks/weights/test_convert.py"
KINDS = "tests/journeys/test_supported_kinds.py"
SORA = "tests/compat/open_sora_plan/test_supported_kinds.py"
LISTS = f"{SORA}::test_clip_lists_are_checked_cached_and_trained"
MINDONE = "tests/compat/mindone/test_supported_kinds.py"
XL = f"{KINDS}::test_sdxl_folder_and_single_file_are_checked_trained_and_sampled"
XL_CKPT = f"{MINDONE}::test_mindspore_sdxl_is_checked_trained_and_sampled_from"
REFINER = f"{KINDS}::test_refiner_is_checked_trained_and_sampled"
LATTE = f"{SORA}::test_released_latte_folder_is_trained_and_sampled_from"
MORE_DATA = f"{KINDS}::test_shards_and_kohya_folders_are_checked_cached_and_trained"
STRAIGHT = "tests/journeys/test_flow_journey.py::test_cached_run_resumes_bit_exactly_and_its_export_can_be_sampled"
MAKERS = "tests/journeys/test_flow_journey.py::test_original_format_checkpoint_is_trained_and_exported_again"
STRAIGHT_FILES = "tests/tasks/weights/test_convert_flow.py::test_flow_folder_to_file_to_folder_keeps_every_tensor"
I2V_FILES = "tests/families/test_wan_i2v.py::test_files_of_the_other_task_are_refused"
FORMS = "tests/journeys/test_flow_journey.py::test_original_format_with_all_parts_or_in_fp8_works_in_each_command"
PARTS = "tests/journeys/test_flow_journey.py::test_standalone_component_files_train_as_the_folder_does"
EXPERTS = "tests/journeys/test_flow_journey.py::test_two_denoisers_in_two_files_train_as_their_folder_does"
REFUSED = "tests/journeys/test_flow_refusals.py"
RECIPES = "tests/journeys/test_flow_recipes.py"
SHIPPED = "tests/tasks/check/test_recipes.py::test_check_accepts_shipped_recipe"
CLIPS = f"{KINDS}::test_clips_are_checked_cached_and_trained"
SDXL = "tests/weights/layouts/test_sdxl.py"
SINGLE = "tests/weights/single_file/test_single_file.py"
XL_FILES = f"{SDXL}::test_single_file_and_folder_round_trip"
XL_MINDSPORE = "tests/compat/mindone/test_sdxl_files.py::test_conversion_to_mindspore_and_back_changes_no_tensor"
TAKEN_OVER = "tests/compat/mindone/test_import_cache.py"

TESTS: dict[str, tuple[str, ...]] = {
    # the model: check, train, sample, convert to a folder, convert to one file
    "a diffusers folder": (
        ONE_FILE, ONE_FILE, ONE_FILE,
        f"{CONVERT}::test_folder_to_file_to_folder_keeps_every_file",
        f"{CONVERT}::test_folder_to_file_to_folder_keeps_every_file",
    ),
    "such a folder with pickled weights (.bin)": (
        f"{HERE}::test_folder_with_pickled_weights_must_be_converted",
        f"{HERE}::test_folder_with_pickled_weights_must_be_converted",
        f"{HERE}::test_folder_with_pickled_weights_must_be_converted",
        f"{CONVERT}::test_folders_with_pickles_become_safetensors",
        f"{HERE}::test_folder_with_pickled_weights_must_be_converted",
    ),
    "one .safetensors file in fp32, fp16 or bf16": (
        ONE_FILE, ONE_FILE, ONE_FILE,
        f"{CONVERT}::test_file_to_folder_to_file_keeps_every_tensor",
        f"{CONVERT}::test_dtype_option_converts_all_but_schedules",
    ),
    "one pickled file: .ckpt, .pt, .bin": (
        ONE_FILE, ONE_FILE, ONE_FILE,
        f"{CONVERT}::test_pickles_become_folders",
        f"{CONVERT}::test_pickles_become_safetensors",
    ),
    "one file with EMA copies in it": (
        ONE_FILE, ONE_FILE, ONE_FILE,
        f"{CONVERT}::test_ema_weights_are_omitted_by_default",
        f"{CONVERT}::test_ema_use_exports_the_ema_as_denoiser",
    ),
    "a run of Mezzotint": (
        "tests/tasks/check/test_check.py::test_existing_run_is_compared_with_the_recipe",
        "tests/journeys/test_journey.py::test_moved_run_folder_resumes_bit_exactly",
        "tests/tasks/sample/test_model.py::test_newest_checkpoint_and_export_generate_the_same_images",
        f"{HERE}::test_converting_a_run_is_refused_with_its_exports_named",
        f"{HERE}::test_converting_a_run_is_refused_with_its_exports_named",
    ),
    "SDXL's base model: a folder, one .safetensors file": (XL, XL, XL, XL_FILES, XL_FILES),
    "its refiner, likewise": (REFINER, REFINER, REFINER, XL_FILES, XL_FILES),
    "SDXL in a MindSpore checkpoint, .ckpt": (XL_CKPT, XL_CKPT, XL_CKPT, XL_MINDSPORE, XL_MINDSPORE),
    "LatteT2V: the released folder, with T5 and its autoencoder": (LATTE,) * 5,
    "SD3, FLUX.1, Chroma, FLUX.2, Qwen-Image, Krea 2, Z-Image, Wan, LTX-Video: diffusers folders": (
        STRAIGHT, STRAIGHT, STRAIGHT, STRAIGHT_FILES, STRAIGHT_FILES,
    ),
    "the same: an original-format .safetensors file, with such a folder beside it": (
        MAKERS, MAKERS, MAKERS, STRAIGHT_FILES, STRAIGHT_FILES,
    ),
    "whole checkpoints of SD3 and LTX-Video; an original-format file in plain fp8": (FORMS,) * 5,
    "an original-format file, with standalone files of the autoencoder and text encoders, as in ComfyUI": (PARTS,) * 5,
    "Wan image to video, 2.1 I2V 14B and 2.2 I2V A14B: diffusers folders": (
        STRAIGHT, STRAIGHT, STRAIGHT, I2V_FILES, I2V_FILES,
    ),
    "Wan 2.2 A14B: an original-format file for each of its two denoisers": (
        EXPERTS, EXPERTS, EXPERTS,
        "tests/tasks/weights/test_convert_flow.py::test_two_denoiser_files_become_one_folder",
        "tests/tasks/weights/test_convert_flow.py::test_two_denoisers_become_two_files_and_are_read_together",
    ),
    # the data: check, cache, train
    "a folder of images, captions in .txt files": (DATA, DATA, DATA),
    "the same, captions in .caption files": (DATA, DATA, DATA),
    "the same, captions in the file names": (DATA, DATA, DATA),
    "kohya's folders 10_name, with and without class words": (MORE_DATA,) * 3,
    "images named by metadata.jsonl, .csv or .parquet": (DATA, DATA, DATA),
    "images inside .parquet or .arrow": (DATA, DATA, DATA),
    "a data set of the Hub in the local cache": (DATA, DATA, DATA),
    "a data folder of EveryDream2, with its yaml and txt files, or its manifest": (DREAMS,) * 3,
    "tables of MindONE's SDXL example, .csv": (f"{MINDONE}::test_mindone_tables_are_checked_cached_and_trained",) * 3,
    "latents and text embeddings cached by MindONE's example": (
        f"{TAKEN_OVER}::test_check_lists_the_imported_cache",
        f"{TAKEN_OVER}::test_imported_cache_gives_the_stored_latents_and_text",
        f"{TAKEN_OVER}::test_training_imports_the_cache_without_loading_encoders",
    ),
    "tar shards (WebDataset)": (MORE_DATA,) * 3,
    "a folder of clips, captions beside them (videofolder)": (CLIPS,) * 3,
    "Open-Sora-Plan's list of clips, with its annotations": (LISTS,) * 3,
    # the recipe: check, translate, train, bench, torchrun, accelerate launch
    "a recipe of Mezzotint": (
        "tests/tasks/check/test_page.py::test_check_output_fits_the_terminal",
        "tests/tasks/test_translate.py::test_wrong_translate_command_prints_usage",
        "tests/journeys/test_journey.py::test_cached_run_trains_validates_previews_and_exports",
        "tests/tasks/bench/test_bench.py::test_bench_measures_recipe_and_leaves_only_results",
        "tests/journeys/test_processes.py::test_sigterm_to_the_group_of_torchrun_saves_once_and_can_be_resumed",
        "tests/journeys/test_processes.py::test_accelerate_launch_trains_in_two_processes",
    ),
    "recipes for flow-matching models: *-lora-24gb, sd35-80gb, klein-80gb, wan-80gb, ltx-80gb": (
        SHIPPED,
        "tests/tasks/test_translate.py::test_wrong_translate_command_prints_usage",
        f"{RECIPES}::test_recipe_trains", f"{RECIPES}::test_recipe_is_benchmarked",
        f"{RECIPES}::test_recipe_trains_in_two_processes", f"{RECIPES}::test_recipe_trains_in_two_processes",
    ),
    "flux-80gb, chroma-80gb, qwen-image-80gb, krea2-80gb, z-image-80gb": (
        SHIPPED,
        "tests/tasks/test_translate.py::test_wrong_translate_command_prints_usage",
        f"{RECIPES}::test_recipe_trains", f"{RECIPES}::test_recipe_is_benchmarked",
        f"{RECIPES}::test_recipe_is_refused_in_two", f"{RECIPES}::test_recipe_is_refused_in_two",
    ),
    "the line of diffusers' train_text_to_image.py, 0.26.3 or head": (
        f"{LINE}::test_check_accepts_the_command",
        "tests/compat/test_contract.py::test_each_flag_has_one_row_with_its_documented_default",
        f"{LINE}::test_output_dir_has_a_pipeline_with_the_ema_unet",
        "tests/compat/diffusers_scripts/test_bench.py::test_foreign_command_has_two_rows_and_the_published_target",
        f"{LINE}::test_command_trains_in_two_processes_of_torchrun",
        f"{LINE}::test_command_trains_in_two_processes_as_in_one",
    ),
    "the line of diffusers' train_text_to_image_sdxl.py, 0.26.3 or head": (
        f"{XL_LINE}::test_check_and_bench_accept_the_command",
        "tests/compat/test_contract.py::test_each_flag_has_one_row_with_its_documented_default",
        f"{XL_LINE}::test_only_the_unet_is_trained_and_exported_with_ema_weights",
        f"{XL_LINE}::test_check_and_bench_accept_the_command",
        f"{XL_LINE}::test_command_trains_in_two_processes",
        f"{XL_LINE}::test_command_trains_in_two_processes",
    ),
    "the lines of diffusers' DreamBooth scripts for SD3, FLUX.1, FLUX.2 Klein, Qwen-Image and Z-Image, head": (
        f"{FLOW_LINES}::test_check_and_bench_accept_the_command",
        "tests/compat/test_contract.py::test_each_flag_has_one_row_with_its_documented_default",
        f"{FLOW_LINES}::test_lora_command_writes_the_file_that_peft_expects",
        f"{FLOW_LINES}::test_check_and_bench_accept_the_command",
        f"{FLOW_LINES}::test_command_trains_in_two_processes",
        f"{FLOW_LINES}::test_command_trains_in_two_processes",
    ),
    "the line of EveryDream2's train.py, with train.json and optimizer.json": (
        f"{EVERYDREAM}::test_check_reads_the_command_and_its_files",
        f"{EVERYDREAM}::test_command_trains_as_its_recipe_and_writes_the_usual_folders",
        f"{EVERYDREAM}::test_command_trains_as_its_recipe_and_writes_the_usual_folders",
        f"{EVERYDREAM}::test_bench_measures_the_command",
        f"{EVERYDREAM}::test_command_trains_in_two_processes_of_torchrun",
        f"{EVERYDREAM}::test_command_trains_in_two_processes_of_torchrun",
    ),
    "the line of MindONE's train.py for SDXL, with its YAML": (
        f"{MINDONE_LINE}::test_check_and_bench_accept_the_command",
        "tests/compat/test_contract.py::test_each_flag_has_one_row_with_its_documented_default",
        f"{MINDONE_LINE}::test_documented_commands_fill_the_cache_and_train",
        f"{MINDONE_LINE}::test_check_and_bench_accept_the_command",
        f"{MINDONE_LINE}::test_command_trains_in_two_processes",
        f"{MINDONE_LINE}::test_command_trains_in_two_processes",
    ),
    "the line of Open-Sora-Plan's train_t2v.py, v1.1": (
        f"{SORA_LINE}::test_check_reads_the_command_and_its_files",
        "tests/compat/test_contract.py::test_each_flag_has_one_row_with_its_documented_default",
        f"{SORA_LINE}::test_killed_run_resumes_bit_exactly_and_exports_both_models",
        f"{SORA_LINE}::test_bench_measures_the_command",
        f"{SORA_LINE}::test_two_sharded_processes_equal_one_and_one_resumes",
        f"{SORA_LINE}::test_two_sharded_processes_equal_one_and_one_resumes",
    ),
    "lines of diffusers' other scripts": (
        "tests/compat/test_contract.py::"
        "test_other_scripts_are_refused_and_a_renamed_script_is_noted",
    ) * 6,
    # files that are something else
    "a model with other inputs: depth, upscaling": (
        "tests/weights/test_kinds.py::test_folder_is_recognised_by_its_configurations",
    ),
    "SD 3, Flux, where model.family is sd": (f"{SINGLE}::test_other_kinds_are_refused",),
    "a folder of another family": (f"{REFUSED}::test_folder_of_another_kind_is_refused",),
    'a distilled model (Krea 2 or Z-Image Turbo, schnell, Klein without "base") that the recipe does not request': (
        f"{REFUSED}::test_distilled_model_is_refused_unless_requested",
    ),
    "a text-to-video model of Wan where an image-to-video model is expected, and the reverse": (
        "tests/families/test_wan_i2v.py::test_parts_of_other_models_are_refused",
    ),
    "a quantized file with separate scales (scaled_fp8)": (
        "tests/weights/single_file/test_original.py::test_unreadable_checkpoints_are_refused_with_the_reason",
    ),
    "an autoencoder file that diffusers does not convert, as model.vae: FLUX.2, Wan 2.2 TI2V 5B": (
        "tests/weights/single_file/test_standalone.py::test_autoencoders_without_conversion_are_refused",
    ),
    "SDXL or its refiner, where model.family is sd": (
        f"{SINGLE}::test_other_kinds_are_refused",
    ),
    "an adapter (LoRA, LoHa, LoKr) where a model is expected": (
        "tests/tasks/weights/test_adapter_files.py::test_adapter_given_as_model_suggests_the_right_command",
    ),
    "ControlNet, textual inversion": (f"{SINGLE}::test_other_kinds_are_refused",),
    "only a VAE or a text encoder": (f"{SINGLE}::test_standalone_vae_is_refused",),
    "a Git LFS pointer, a web page, an empty or truncated download, GGUF": (
        f"{SINGLE}::test_files_without_weights_are_refused",
    ),
    "a pickle that asks for more than tensors": (
        "tests/weights/files/test_unpickling.py::test_functions_are_refused_by_name",
    ),
}  # fmt: skip
"""The test of every cell, by the row's first cell, in the order of the columns."""


# the table itself


def rows(text: str) -> Iterator[tuple[str, list[str]]]:
    """(first cell, the others) of each row of the tables of the page, backticks off."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    for number, line in enumerate(lines):
        first, *rest = (cell.strip() for cell in line.strip("|").replace("`", "").split("|"))
        head = number + 1 < len(lines) and set(lines[number + 1]) <= set("|-")
        if not head and not set(line) <= set("|-"):
            yield first, rest


def wrong_cells(text: str) -> list[str]:
    """Problems of the page: a cell without a test, a test without a cell, a cell that is neither yes nor no."""
    wrong = []
    table = dict(rows(text))
    wrong += [f"{row}: no test is named" for row in table.keys() - TESTS.keys()]
    wrong += [f"{row}: no row of the page" for row in TESTS.keys() - table.keys()]
    for row in table.keys() & TESTS.keys():
        if len(table[row]) != len(TESTS[row]):
            wrong.append(f"{row}: {len(table[row])} cells, {len(TESTS[row])} tests")
        wrong += [f"{row}: {cell!r}" for cell in table[row] if not _promises(cell)]
    return wrong


def _promises(cell: str) -> bool:
    """`yes`, `yes, …`, `no: …`, or an answer with its code."""
    codes = re.findall(r"\bE\d{4}\b", cell)
    if codes:
        return cell.startswith("refused") and set(codes) <= set(error_codes())
    return bool(re.fullmatch(r"yes(, .+)?|no: .+", cell))


def test_each_cell_of_the_page_has_a_test() -> None:
    assert wrong_cells(PAGE.read_text("utf-8")) == []


def test_each_named_test_exists_and_runs_in_ci() -> None:
    names = {name for cells in TESTS.values() for name in cells}
    for file in {name.partition("::")[0] for name in names}:
        if file.startswith("tests/compat/") and not (ROOT / file).exists():
            continue  # of a trainer whose folder is absent
        functions = {
            n.name: n for n in ast.parse((ROOT / file).read_text("utf-8")).body if isinstance(n, ast.FunctionDef)
        }
        for name in (n.partition("::")[2] for n in names if n.startswith(f"{file}::")):
            assert name in functions, f"{file} has no {name}"
            marks = " ".join(map(ast.unparse, functions[name].decorator_list))
            assert not re.search(r"\b(skip|gpu|xfail)\b", marks), name


@pytest.mark.parametrize(
    ("change", "output"),
    [
        (("| a run of Mezzotint | yes |", "| a run of Mezzotint | yes | yes |"), "6 cells, 5 tests"),
        (("| a run of Mezzotint | yes |", "| a run of Mezzotint | maybe |"), "'maybe'"),
        (("| a run of Mezzotint | yes |", "| a run of Mezzotint | no |"), "'no'"),
        (("| a run of Mezzotint |", "| a wish |"), "a wish: no test is named"),
        (("| a run of Mezzotint |", "| a wish |"), "a run of Mezzotint: no row"),
        (("by name (E1402)", "by name (E1499)"), "E1499"),
        (("| a recipe of Mezzotint | yes", "| videos | yes |\n| a recipe of Mezzotint | yes"), "videos: no test"),
    ],
)
def test_missing_test_of_a_cell_is_noticed(change: tuple[str, str], output: str) -> None:
    page = PAGE.read_text("utf-8")
    assert change[0] in page
    assert any(output in one for one in wrong_cells(page.replace(*change)))


# models


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory, shallow_sd: Path) -> dict[str, Path]:
    """One small model in each format, by the parameter of `test_each_model_format_is_checked_trained_and_sampled`."""
    root = tmp_path_factory.mktemp("forms")
    paths = {"folder": shallow_sd}
    for dtype in ("fp32", "fp16", "bf16"):
        paths[dtype] = root / f"{dtype}.safetensors"
        assert main(["convert", str(shallow_sd), str(paths[dtype]), f"--dtype={dtype}"]) == 0
    tensors = load_file(paths["fp32"])
    for ending in ("ckpt", "pt", "bin"):
        paths[ending] = root / f"model.{ending}"
        torch.save({"state_dict": tensors, "global_step": 7}, paths[ending])
    averaged = {LAYOUT.average(name): 0.5 * t for name, t in tensors.items() if name.startswith("model.")}
    paths["averaged"] = root / "averaged.safetensors"
    save_file(tensors | averaged, paths["averaged"])
    return paths


FORMS_OF_A_MODEL = ("folder", "fp32", "fp16", "bf16", "ckpt", "pt", "bin", "averaged")
FIRST_OF_ITS_ROW = {"folder", "fp16", "ckpt", "averaged", ".txt", ".caption", "file names", "metadata.jsonl", "hub",
                    "images in .parquet"}  # fmt: skip
"""Formats tested with all commands. Others of the same row are only read in another way, which one command shows."""
READ_ALIKE = {
    "averaged", "fp16", "fp32", "bf16", "pt", "bin", "file names", ".caption", "metadata.csv", "metadata.parquet",
    "images in .arrow", "hub",
}  # fmt: skip
"""Formats that tests of their readers cover quickly; `make slow` tests them in a whole run."""


def quick_first(forms: Iterable[str]) -> list[Any]:
    return [pytest.param(form, marks=pytest.mark.slow) if form in READ_ALIKE else form for form in forms]


@pytest.mark.usefixtures("pickles_read_here")
@pytest.mark.parametrize("form", quick_first(FORMS_OF_A_MODEL))
def test_each_model_format_is_checked_trained_and_sampled(
    form: str, forms: dict[str, Path], here: Path, plain_loss: Callable[[], float]
) -> None:
    config = () if form == "folder" else (f"model.config={forms['folder']}",)
    chosen = ("model.ema_weights=use",) if form == "averaged" else ()
    sampling = ["--prompt=a red field", "--size=64x64", "--steps=1", "--out=drawn", *config, *chosen]
    assert main(["sample", str(forms[form]), *sampling, "run.device=cpu"]) == 0
    assert (here / "drawn" / "contact.png").is_file()
    if form in ("pt", "bin"):
        return
    model = (f"model.path={forms[form]}", *config, *chosen)
    if form in FIRST_OF_ITS_ROW:
        assert main(["check", *words("run", *model)]) == 0
    assert main(["train", *words("run", *model)]) == 0
    expected = plain_loss()
    match form:
        case "fp16" | "bf16":
            assert logged("run")[0] == pytest.approx(expected, rel=2e-2)
            assert logged("run")[0] != expected
        case "averaged":
            assert abs(logged("run")[0] - expected) > 1e-4
        case _:
            assert logged("run")[0] == expected


@pytest.fixture(scope="module")
def plain_loss(shallow_sd: Path) -> Callable[[], float]:
    """The first loss of the model as a folder, measured once, in the current folder."""
    known: list[float] = []

    def loss() -> float:
        if not known:
            assert main(["train", *words("plain", f"model.path={shallow_sd}")]) == 0
            known.append(logged("plain")[0])
        return known[0]

    return loss


@pytest.mark.usefixtures("pickles_read_here")
def test_folder_with_pickled_weights_must_be_converted(
    here: Path, shallow_sd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(shallow_sd, here / "old")
    for path in (here / "old").rglob("*.safetensors"):
        name = (
            path.name.replace("model.safetensors", "pytorch_model.bin") if path.name[0] == "m" else path.stem + ".bin"
        )
        torch.save(load_file(path), path.with_name(name))
        path.unlink()
    capsys.readouterr()
    for line in (
        ["check", *words("run", "model.path=old")],
        ["train", *words("run", "model.path=old")],
        ["sample", "old", "--prompt=x", "--out=drawn"],
    ):
        assert main(line) == 2
        output = capsys.readouterr().err
        assert "E1408" in output
        assert "mezzotint convert" in output
    assert main(["convert", "old", "new.safetensors"]) == 0
    assert main(["convert", str(shallow_sd), "same.safetensors"]) == 0
    new, same = load_file("new.safetensors"), load_file("same.safetensors")
    assert new.keys() == same.keys()
    assert all(torch.equal(new[name], same[name]) for name in new)


def test_converting_a_run_is_refused_with_its_exports_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "run" / "checkpoints").mkdir(parents=True)
    for target in ("model", "model.safetensors"):
        assert main(["convert", "run", target]) == 2
        assert "is a run folder; give one of its exports; it has none yet" in capsys.readouterr().err
    (here / "run" / "exports" / "step-00000020").mkdir(parents=True)
    assert main(["convert", "run", "model"]) == 2
    assert "such as run/exports/step-00000020" in capsys.readouterr().err


# data


def sidecars(folder: Path, ending: str) -> str:
    for number, caption in enumerate(CAPTIONS):
        draw(folder, *CAPTIONS)
        (folder / f"{CAPTIONS[number]}{ending}").write_text(caption)
    return "data.format=image-folder"


def file_names(folder: Path) -> str:
    draw(folder, *CAPTIONS)
    return "data.captions.source=filename"


def with_images(folder: Path, ending: str) -> str:
    drawn = sorted(draw(folder.with_name("drawn-apart"), *CAPTIONS).iterdir())
    rows = {
        "image": [{"bytes": path.read_bytes(), "path": None} for path in drawn], "text": [path.stem for path in drawn],
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    if ending == ".parquet":
        pq.write_table(pa.table(rows), folder / "data.parquet")
    else:
        columns = pa.table(rows)
        with pa.OSFile(str(folder / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, columns.schema) as stream:
            stream.write_table(columns)
    return "data.format=metadata"


def of_the_hub(folder: Path) -> str:
    """someone/images in the cache of `datasets` in hub/, as after a download."""
    with_images(folder, ".parquet")
    files = datasets.data_files.DataFilesList([str(folder / "data.parquet")], [()])
    Parquet(
        cache_dir=str(folder.parent / "hub"), dataset_name="images", config_name="default", config_id="default",
        hash="abc", data_files=datasets.data_files.DataFilesDict({"train": files}),
        features=datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")}),
    ).download_and_prepare()  # fmt: skip
    target = folder.parent / "hub" / "someone___images"
    target.mkdir()
    (folder.parent / "hub" / "images" / "default").rename(target / "default")
    shutil.rmtree(folder)
    return "data.format=metadata"


FORMS_OF_DATA: dict[str, Callable[[Path], str]] = {
    ".txt": lambda folder: sidecars(folder, ".txt"),
    ".caption": lambda folder: sidecars(folder, ".caption"),
    "file names": file_names,
    "metadata.jsonl": lambda folder: table(folder, ".jsonl"),
    "metadata.csv": lambda folder: table(folder, ".csv"),
    "metadata.parquet": lambda folder: table(folder, ".parquet"),
    "images in .parquet": lambda folder: with_images(folder, ".parquet"),
    "images in .arrow": lambda folder: with_images(folder, ".arrow"),
    "hub": of_the_hub,
}


@pytest.mark.parametrize("form", quick_first(FORMS_OF_DATA))
def test_each_data_format_is_checked_cached_and_trained(
    form: str, here: Path, shallow_sd: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offline(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    data = ["data.path=data", FORMS_OF_DATA[form](here / "data")]
    if form == "hub":
        data += ["data.path=someone/images", "data.hub_cache=hub"]
    require_checked_cached_and_trained(shallow_sd, data, capsys, is_whole=form in FIRST_OF_ITS_ROW)
