"""Data sets of command lines and of data set files, as `data`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kohya_data_lines import notes, problems, recipe, settings, translate

from mezzotint.settings.reading.translation import Launched

LINE = ("--train_data_dir=images", "--resolution=512")
FILE = "--dataset_config=data.toml"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("images", "a", "b", "reg", "masks"):
        Path(name).mkdir()
    return tmp_path


def write(general: str, *sets: tuple[str, list[str]]) -> str:
    """A file: general keys, and for each data set its keys and those of its subsets."""
    text = f"[general]\n{general}\n"
    for keys, subsets in sets:
        text += f"[[datasets]]\n{keys}\n" + "".join(f"[[datasets.subsets]]\n{one}\n" for one in subsets)
    Path("data.toml").write_text(text, "utf-8")
    return FILE


def test_folders_of_a_line_become_one_set_with_class_images() -> None:
    values = settings(*LINE, "--reg_data_dir=reg", "--prior_loss_weight=0.5")
    assert (values["data.path"], values["data.prior.path"]) == ("images", "reg")
    assert (values["data.prior.weight"], values["data.format"]) == (0.5, "kohya")
    assert values["data.captions.missing"] == "empty"
    read = recipe(*LINE, "--reg_data_dir=reg", "--prior_loss_weight=0.5").data
    assert [one.is_class for one in read.image_sets()] == [False, True]


def test_weight_of_class_images_is_dropped_without_them() -> None:
    assert settings(*LINE, "--prior_loss_weight=0.5")["data.prior.weight"] == 1.0
    assert "--prior_loss_weight: has no effect without class images" in notes(*LINE, "--prior_loss_weight=0.5")


def test_metadata_file_of_a_line_names_the_images_of_the_folder() -> None:
    values = settings(*LINE, "--in_json=meta.json", "--dataset_repeats=3")
    assert values["data.kohya_subsets.metadata_file"] == "meta.json"
    assert values["data.repeats"] == 3.0
    assert values["data.format"] == "kohya-subsets"
    assert "--dataset_repeats: has no effect without --in_json" in notes(*LINE, "--dataset_repeats=3")


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("--resolution=512",), "--train_data_dir"),
        (("--train_data_dir=images",), "--resolution"),
        (("--train_data_dir=images", "--resolution=5x"), "--resolution"),
        ((*LINE, "--cache_latents", "--random_crop"), "--cache_latents"),
        ((*LINE, "--caption_extension=txt"), "--caption_extension"),
        ((*LINE, "--caption_dropout_rate=2"), "--caption_dropout_rate"),
        ((*LINE, "--keep_tokens=-1"), "--keep_tokens"),
        ((*LINE, "--enable_bucket", "--max_bucket_reso=256"), "--resolution"),
        ((*LINE, "--resize_interpolation=cubicc"), "--resize_interpolation"),
        ((*LINE, "--script=fine_tune"), "--in_json"),
        ((*LINE, "--script=sdxl_train", "--cache_text_encoder_outputs", "--shuffle_caption"), "--shuffle_caption"),
    ],
)
def test_impossible_options_are_refused(words: tuple[str, ...], where: str) -> None:
    assert [problem.where for problem in problems(*words)] == [where]


@pytest.mark.parametrize(
    ("words", "feature"),
    [
        ("--caption_separator=;", "other caption separators"),
        ("--token_warmup_step=10", "tag warm-up"),
        ("--color_aug", "color augmentation"),
    ],
)
def test_options_that_wait_name_their_feature(words: str, feature: str) -> None:
    [problem] = problems(*LINE, words)
    assert (problem.code, problem.where) == ("E1018", words.partition("=")[0])
    assert feature in problem.message
    key, _, value = words.removeprefix("--").partition("=")
    written = f"{key} = {value if value.isdecimal() else repr(value) if value else 'true'}"
    file = write(f"resolution = 512\nshuffle_caption = true\n{written}", ("", ["image_dir = 'a'"]))
    [problem] = problems(file)
    assert (problem.where, problem.line) == (f"general.{key} in data.toml", 4)
    assert feature in problem.message


def test_separators_act_on_captions_that_are_split() -> None:
    words = ("--keep_tokens_separator=|||", "--secondary_separator=;;")
    values = settings(*LINE, "--shuffle_caption", *words)
    assert (values["data.captions.keep_separator"], values["data.captions.second_separator"]) == ("|||", ";;")
    assert recipe(*LINE, "--caption_tag_dropout_rate=0.1", *words).data.captions.keep_separator == "|||"
    file = write("resolution = 512\nkeep_tokens_separator = '|||'", ("", ["image_dir = 'a'"]))
    assert "data.captions.keep_separator" not in settings(file)
    assert "keep_tokens_separator: only acts with shuffle_caption" in notes(file)
    file = write("resolution = 512\nsecondary_separator = ';;'", ("", ["image_dir = 'a'"]))
    [problem] = problems(file)
    assert (problem.where, problem.line) == ("general.secondary_separator in data.toml", 3)
    assert "shuffled or dropped" in problem.message


def test_captions_of_every_nth_epoch_are_dropped() -> None:
    assert recipe(*LINE, "--caption_dropout_every_n_epochs=3").data.captions.dropout_every == 3
    file = write("resolution = 512\ncaption_dropout_every_n_epochs = -1", ("", ["image_dir = 'a'"]))
    assert "must be 0 or more, got -1" in problems(file)[0].message


def test_texts_and_extensions_of_captions_differ_by_set() -> None:
    file = write(
        "resolution = 512",
        ("", ["image_dir = 'a'\ncaption_suffix = 'photo'", "image_dir = 'b'\ncaption_extension = '.txt'"]),
    )
    first, second = recipe(file).data.image_sets()
    assert [first.settings.captions.suffix, second.settings.captions.suffix] == ["photo", ""]
    assert [first.settings.captions.extension, second.settings.captions.extension] == [".caption", ".txt"]


def test_small_images_keep_their_size() -> None:
    words = ("--enable_bucket", "--bucket_no_upscale")
    values = settings(*LINE, *words)
    assert (values["data.buckets.shape"], values["data.buckets.step"]) == ("own", 64)
    assert recipe(*LINE, *words).data.buckets.shape == "own"
    assert "min_bucket_reso has no effect with bucket_no_upscale" in notes(*LINE, *words, "--min_bucket_reso=320")
    rectangle = (*LINE[:1], "--resolution=512,768", *words)
    assert "images with more than 624×624 pixels" in notes(*rectangle)
    assert "without enable_bucket" in notes(*LINE, "--bucket_no_upscale")
    assert settings(*LINE, "--bucket_no_upscale")["data.buckets.shape"] == "square"


def test_only_sizes_of_rectangles_are_chosen_by_another_rule() -> None:
    assert "log(width / height)" not in notes(*LINE, "--enable_bucket")
    assert "log(width / height)" in notes(*LINE[:1], "--resolution=512,768", "--enable_bucket")


@pytest.mark.parametrize(
    ("keep", "wildcards", "expected"),
    [(0, False, -1), (2, False, 1), (2, True, 1), (0, True, -1)],
)
def test_kept_tags_are_counted_from_the_first(keep: int, wildcards: bool, expected: int) -> None:
    words = ("--shuffle_caption", f"--keep_tokens={keep}", *(["--enable_wildcard"] if wildcards else []))
    values = settings(*LINE, *words)
    assert values["data.captions.keep_tags"] == expected
    assert values["data.captions.lines"] == ("random" if wildcards else "first")


def test_sets_have_what_differs_from_the_shared_settings() -> None:
    file = write(
        "caption_extension = '.txt'\nshuffle_caption = true\nkeep_tokens = 1",
        ("resolution = 512\nbatch_size = 4", [
            "image_dir = 'a'\nclass_tokens = 'a girl'\nnum_repeats = 10",
            "image_dir = 'reg'\nis_reg = true\nclass_tokens = 'girl'\nkeep_tokens = 2",
        ]),
        ("resolution = [768, 768]\nbatch_size = 2", ["image_dir = 'b'\nflip_aug = true"]),
    )  # fmt: skip
    data = translate(file, "--prior_loss_weight=0.5").settings["data"]
    assert data["sets"] == [
        {"path": "a", "repeats": 10.0, "batch_size": 4, "resolution": 512, "flip": 0.0, "captions": {"keep_tags": 0}},
        {"path": "reg", "class_images": True, "repeats": 1.0, "batch_size": 4, "resolution": 512, "flip": 0.0,
         "captions": {"keep_tags": 1}},
        {"path": "b", "repeats": 1.0, "batch_size": 2, "resolution": 768, "flip": 0.5, "captions": {"keep_tags": 0}},
    ]  # fmt: skip
    assert data["kohya_subsets"] == {
        "folders": [{"path": "a", "class_tokens": "a girl"}, {"path": "reg", "class_tokens": "girl"}],
    }  # fmt: skip
    assert (data["buckets"], data["prior"]) == ({"shape": "square", "step": 64}, {"weight": 0.5})
    read = recipe(file, "--prior_loss_weight=0.5").data
    assert [one.settings.resolution for one in read.image_sets()] == [(512,), (512,), (768,)]


def test_each_size_has_its_buckets() -> None:
    file = write(
        "enable_bucket = true", ("resolution = 512", ["image_dir = 'a'"]), ("resolution = 768", ["image_dir = 'a'"])
    )
    assert translate(file).settings["data"]["buckets"] == {
        "shape": "range", "step": 64, "min_side": 256, "max_side": 1024,
    }  # fmt: skip
    assert [one.settings.resolution for one in recipe(file).data.image_sets()] == [(512,), (768,)]


def test_one_folder_in_several_sizes_has_one_entry_of_rules() -> None:
    file = write(
        "class_tokens = 'x'", ("resolution = 512", ["image_dir = 'a'"]), ("resolution = 768", ["image_dir = 'a'"])
    )
    values = settings(file)
    assert "data.kohya_subsets.folders" not in values
    assert [one["path"] for one in values["data.sets"]] == ["a", "a"]
    [problem] = problems(write("", ("resolution = 512", ["image_dir = 'a'"]),
                               ("resolution = 768", ["image_dir = 'a'\nclass_tokens = 'y'"])))  # fmt: skip
    assert "has a several times, with other captions" in problem.message


def test_masks_are_the_alpha_channel_or_a_folder() -> None:
    file = write("resolution = 512", ("", ["image_dir = 'a'\nalpha_mask = true", "image_dir = 'b'"]))
    data = translate(file).settings["data"]
    assert data["mask"] == {"source": "alpha", "mean": "image"}
    assert [one["mask"] for one in data["sets"]] == [{"source": "alpha"}, {"source": "files"}]  # b has no mask files
    assert [one.settings.mask.source for one in recipe(file).data.image_sets()] == ["alpha", "files"]
    file = write("resolution = 512", ("", ["image_dir = 'a'\nconditioning_data_dir = 'masks'"]))
    values = settings(file, "--masked_loss")
    assert [values[f"data.mask.{key}"] for key in ("source", "path", "mean")] == ["files", "masks", "image"]
    [problem] = problems(file)
    assert (problem.where, problem.line) == ("datasets.0.subsets.0.conditioning_data_dir in data.toml", 7)
    assert settings(*LINE, "--alpha_mask")["data.mask.source"] == "alpha"
    assert "masks are in conditioning_data_dir" in notes(*LINE, "--masked_loss")


def test_metadata_subset_without_a_folder_is_next_to_its_file() -> None:
    file = write("resolution = 512", ("", ["metadata_file = 'a/meta.json'"]))
    values = settings(file)
    assert (values["data.path"], values["data.kohya_subsets.metadata_file"]) == ("a", "a/meta.json")


def test_batches_are_of_all_processes() -> None:
    file = write("resolution = 512", ("batch_size = 3", ["image_dir = 'a'"]))
    assert settings(file, launched=Launched(4))["data.batch_size"] == 12
    assert settings(*LINE, "--train_batch_size=3", launched=Launched(2))["data.batch_size"] == 6


@pytest.mark.parametrize("key", ["cache_latents", "cache_latents_to_disk"])
def test_cached_latents_are_one_sample_of_several_crops_with_flips(key: str) -> None:
    values = settings(*LINE, f"--{key}", "--flip_aug")
    assert [values[f"data.cache.{name}"] for name in ("latents", "content", "crops")] == [True, "sample", 4]
    assert "data.cache.crops" not in settings(*LINE, f"--{key}")


@pytest.mark.parametrize(
    ("splits", "expected"), [((0.1, 0.1), 0.1), ((0.0, 0.1), None), ((1.0, 1.0), None), ((0.0, 0.0), "absent")]
)
def test_validation_split_is_one_share_of_all(splits: tuple[float, ...], expected: Any) -> None:
    sets = [(f"resolution = {512 + 64 * n}\nvalidation_split = {share}", [f"image_dir = '{name}'"])
            for n, (name, share) in enumerate(zip("ab", splits, strict=True))]  # fmt: skip
    file = write("", *sets)
    if expected is None:
        assert "validation splits of single data sets" in problems(file)[0].message
    else:
        values = settings(file)
        assert values.get("data.holdout.fraction", "absent") in (expected, 0.0 if expected == "absent" else expected)


def test_images_that_a_file_holds_out_are_measured_as_the_options_say() -> None:
    file = write("resolution = 512\nvalidation_split = 0.1", ("", ["image_dir = 'a'"]))
    assert settings(file)["run.validation.every"] == "1 epochs"
    assert settings(file, "--validate_every_n_steps=50")["run.validation.every"] == "50 steps"
    assert settings(file)["data.holdout.max_samples"] == 1_000_000
    assert settings(file, "--max_validation_steps=3", "--train_batch_size=2")["data.holdout.max_samples"] == 6


def test_what_a_file_replaces_is_noted() -> None:
    file = write("resolution = 512", ("", ["image_dir = 'a'", "image_dir = 'b'\nnum_repeats = 0"]))
    text = notes(file, "--train_data_dir=images", "--in_json=x.json")
    assert "--train_data_dir: has no effect with --dataset_config" in text
    assert "--in_json: has no effect with --dataset_config" in text
    assert "datasets.0.subsets.1 in data.toml is left out: num_repeats is 0" in text
    only = write("resolution = 512", ("", ["image_dir = 'a'\nis_reg = true"]))
    assert "has no folder of images that are not class images" in problems(only)[0].message


def test_images_count_once_in_a_data_set() -> None:
    one = ["image_dir = 'a'\nnum_repeats = 2", "image_dir = 'a'\nnum_repeats = 3"]
    file = write("resolution = 512", ("", one))
    assert settings(file)["data.repeats"] == 2.0
    assert "datasets.0.subsets.1 in data.toml is left out: its data set has the same images already" in notes(file)
    file = write("resolution = 512", ("", one[:1]), ("", one[1:]))
    assert [entry["repeats"] for entry in settings(file)["data.sets"]] == [2.0, 3.0]


def test_other_attributes_have_no_effect() -> None:
    file = write("resolution = 512\ncustom_attributes = {note = 'x'}", ("", ["image_dir = 'a'"]))
    assert settings(file)["data.path"] == "a"


def test_templates_of_learned_tokens_keep_their_alternatives() -> None:
    words = ("--script=train_textual_inversion", "--token_string=zxc", "--init_word=cat", "--use_object_template")
    values = settings(*words, *LINE)
    assert values["data.captions.wildcards"] is True
    assert "{trigger}" in values["data.captions.template"][0]


@pytest.mark.parametrize(
    ("general", "where"),
    [
        ("resolution = 512\nnetwork_multiplier = 0.5", "general.network_multiplier"),
        ("resolution = 512\nbatch_size = 0", "general.batch_size"),
        ("resolution = 512\ncaption_dropout_rate = 2", "general.caption_dropout_rate"),
        ("resolution = 512\ncaption_extension = 'txt'", "general.caption_extension"),
        ("batch_size = 2", "datasets.0.resolution"),
        ("resolution = 512\nface_crop_aug_range = [1.0, 2.0]", "general.face_crop_aug_range"),
        ("resolution = 512\ncustom_attributes.diff_output_preservation = true", "general.custom_attributes"),
        ("resolution = 512\ncustom_attributes = 3", "general.custom_attributes"),
    ],
)
def test_impossible_values_of_a_file_are_named(general: str, where: str) -> None:
    [problem] = problems(write(general, ("", ["image_dir = 'a'"])))
    assert problem.where == f"{where} in data.toml"


def test_preserved_regularization_images_get_the_prediction_of_the_base() -> None:
    attribute = "custom_attributes.diff_output_preservation = true"
    reg = f"image_dir = 'b'\nis_reg = true\n{attribute}"
    file = write("resolution = 512", ("", ["image_dir = 'a'", reg]))
    assert settings(file)["objective.preserve.kind"] == "class-images"
    file = write("resolution = 512", ("", ["image_dir = 'a'", reg, "image_dir = 'c'\nis_reg = true"]))
    [problem] = problems(file)
    assert "for some sets with is_reg and not for others" in problem.message
