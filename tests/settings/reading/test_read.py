"""Where a recipe begins: a file or a name, the origin of every value, secrets, paths, what ships."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import (
    SCHEMA_COMMENT,
    Reading,
    candidate_paths,
    digest_of,
    read,
    read_text,
    resolve_paths,
    shipped_recipes,
)
from mezzotint.settings.recipe import Recipe


def test_recipe_records_the_origin_of_every_value() -> None:
    reading = read_text("optim:\n  lr: 1e-6\nrun: {name: fox}\n", "r", ["data.batch_size=8", "run.name=hare"])
    assert reading.recipe.optim.lr == 1e-6
    assert reading.recipe.data.batch_size == 8
    assert reading.origin["optim.lr"] == "line 2"
    assert reading.origin["data.batch_size"] == "command line"
    assert reading.origin["run.name"] == "command line"
    assert "optim.accumulation" not in reading.origin


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("run: {log_every: 3}\n# token hf_abcdefghijklmnopqrstuvwxyz0123\n", 2),
        ("run:\n  name: hf_abcdefghijklmnopqrstuvwxyz0123\n", 2),
        ("data: {path: 'https://me:secret@host/x'}\n", 1),
        ("sample:\n  prompts:\n    - 0123456789abcdef0123456789abcdef01234567\n", 3),
        ("wandb: {api_key: whatever}\n", 1),
    ],
)
def test_secrets_are_refused_with_their_line_and_not_echoed(text: str, line: int) -> None:
    with pytest.raises(RecipeError) as caught:
        read_text(text)
    assert ("E1009", line) in [(p.code, p.line) for p in caught.value.problems]
    for secret in ("hf_abc", "secret@", "0123456789abcdef", "whatever"):
        assert secret not in str(caught.value)


def test_snapshot_folder_is_not_a_secret() -> None:
    path = "models--x/snapshots/0123456789abcdef0123456789abcdef01234567"
    assert read_text(f"model: {{path: {path}}}").recipe.model.path == Path(path)


def test_digest_depends_on_values_not_spelling() -> None:
    one = read_text("optim: {lr: 1e-6}\nmodel: {train: denoiser}\n# words\n")
    two = read_text("model:\n  train: [denoiser]\n", overrides=["optim.lr=0.000001"])
    other = read_text("optim: {lr: 2e-6}")
    assert one.digest == two.digest == digest_of(one.recipe)
    assert other.digest != one.digest
    assert len(one.digest) == 64


def test_dumped_recipe_reads_back_equal() -> None:
    sets = "[{path: a, flip: 0.5}, {path: b, captions: {trigger: sks}}]"
    recipe = read_text(f"run: {{save: {{every: 2 epochs}}}}\nsample: {{size: [64, 32]}}\ndata: {{sets: {sets}}}").recipe
    assert Recipe.model_validate(recipe.model_dump(mode="json", by_alias=True)) == recipe


def test_paths_are_searched_in_recipe_cwd_and_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, here = tmp_path / "recipes", tmp_path / "here"
    for folder in (beside / "photos", here / "photos", here / "only_here"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = beside / "r.yaml"
    file.write_text(
        "data: {sets: [{path: photos}, {path: only_here}, {path: nowhere}, {path: ~/here}]}\n"
        "run: {folder: ~/out, resume: ~/old}\nmodel: {path: tiny-sd}\n"
    )
    reading = read(file)
    recipe = resolve_paths(reading)
    assert recipe.data.paths == (beside / "photos", here / "only_here", Path("nowhere"), here)
    assert (recipe.run.folder, recipe.run.resume) == (tmp_path / "out", str(tmp_path / "old"))
    assert recipe.data.cache.path == tmp_path / ".cache/mezzotint"
    assert recipe.model.path.is_absolute()
    assert recipe.model.path.parts[-3:] == ("assets", "models", "tiny-sd")
    assert reading.recipe.data.paths[0] == Path("photos")
    assert candidate_paths(Path("nowhere"), beside) == (beside / "nowhere", here / "nowhere")


def test_paths_in_every_section_are_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("held", "vae", "moments", "one", "refiner"):
        (tmp_path / name).mkdir()
    text = """
data: {holdout: {path: {val: held, other: nowhere}}}
model: {vae: vae, over: [one, two], family: sdxl}
sample: {image: one/a.png, refiner: {path: refiner}}
run: {export: {folder: out, single_file_folder: ~/x}, start: {step: 1, optimizer: moments}, profile: {folder: ~/logs}}
"""
    recipe = resolve_paths(read_text(text))
    assert recipe.data.holdout.path == {"val": tmp_path / "held", "other": Path("nowhere")}
    assert (recipe.model.vae, recipe.model.over) == (tmp_path / "vae", (tmp_path / "one", Path("two")))
    assert (recipe.sample.image, recipe.sample.refiner.path) == (Path("one/a.png"), tmp_path / "refiner")
    assert (recipe.run.export.folder, recipe.run.start.optimizer) == (tmp_path / "out", tmp_path / "moments")
    assert recipe.run.export.single_file_folder == Path("~/x").expanduser()
    assert recipe.run.profile.folder == Path("~/logs").expanduser()


def test_other_paths_do_not_depend_on_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "live.yaml").write_text("schema: 1")
    file = tmp_path / "recipes" / "fox.yaml"
    file.write_text(
        "run: {profile: {folder: traces}, live: {path: live.yaml}, export: {single_file_folder: files}}\n"
        "data: {format: metadata, hub_cache: hub}\n"
    )
    monkeypatch.chdir(tmp_path)
    recipe = resolve_paths(read(file))
    assert (recipe.run.profile.folder, recipe.data.hub_cache) == (tmp_path / "traces", tmp_path / "hub")
    assert recipe.run.export.single_file_folder == tmp_path / "files"
    assert recipe.run.live.path == tmp_path / "recipes" / "live.yaml"
    later = resolve_paths(read(file, ["run.live.path=later.yaml"]))
    assert later.run.live.path == tmp_path / "later.yaml", "it may be written while the run goes"


def test_dots_in_a_path_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "pics", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "pics")
    monkeypatch.chdir(tmp_path / "here")
    words = ["../a/../pics", f"{tmp_path}/a/../pics", "../a/link"]
    for word in words[:2]:
        assert resolve_paths(read_text("schema: 1", overrides=[f"data.path={word}"])).data.path == tmp_path / "pics"
    link = resolve_paths(read_text("schema: 1", overrides=[f"data.path={tmp_path}/a/link"])).data.path
    assert link == tmp_path / "a" / "link", "a link without dots stays as it is written"


def test_local_file_takes_precedence_over_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ships" / "models" / "small").mkdir(parents=True)
    (tmp_path / "ships" / "data" / "foxes").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("mezzotint.settings.reading.read.MODELS", tmp_path / "ships" / "models")
    monkeypatch.setattr("mezzotint.settings.reading.read.DATA", tmp_path / "ships" / "data")
    reading = read_text("model: {path: small}\ndata: {path: foxes}\n")
    shipped = resolve_paths(reading)
    assert shipped.model.path == tmp_path / "ships" / "models" / "small"
    assert shipped.data.path == tmp_path / "ships" / "data" / "foxes"
    (tmp_path / "here" / "foxes").mkdir()
    assert resolve_paths(reading).data.path == tmp_path / "here" / "foxes"


def test_missing_recipe_suggests_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "portrait.yaml").write_text("run: {log_every: 1}")
    with pytest.raises(RecipeError, match=r"did you mean portrait\.yaml\?"):
        read("potrait.yaml")
    with pytest.raises(RecipeError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(RecipeError) as caught:
        read("zzzz")
    assert caught.value.code == "E1011"


def test_shipped_recipe_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tiny_cpu.yaml"
    file.write_text("run: {name: shipped}")
    monkeypatch.setattr("mezzotint.settings.reading.read.shipped_recipes", lambda: {"tiny_cpu": file})
    for name in ("tiny_cpu", "tiny-cpu", "tiny_cpu.yaml"):
        assert read(name).recipe.run.name == "shipped"


def test_every_shipped_recipe_reads_and_has_the_schema_line() -> None:
    shipped = shipped_recipes()
    assert shipped, "no recipe ships"
    for path in shipped.values():
        assert isinstance(read(path), Reading)
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith(SCHEMA_COMMENT)
        assert (path.parent / first.removeprefix(SCHEMA_COMMENT)).resolve().name == "recipe.schema.json"


def test_reading_is_fast_and_does_not_import_torch(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("optim: {lrr: 1}\n")
    code = (
        "import sys\nfrom mezzotint.cli import main\nstatus = main(['train', 'bad.yaml'])\n"
        "heavy = {'torch', 'diffusers', 'transformers', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy\nsys.exit(status)"
    )
    before = os.times()
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    after = os.times()
    # the child's own time: a machine that is busy with other things answers later, and computes no longer
    took = after.children_user + after.children_system - before.children_user - before.children_system
    assert took < 2.0
    assert done.returncode == 2, done.stderr
    assert "did you mean optim.lr?" in done.stderr


UNUSABLE = {
    "sha\0pes": "contains a NUL character",
    "~nosuchuser/x": "names no home folder",
    "a" * 10_000: "is too long for a path",
    "x" * 256: "is too long for a path",
    "x\udcff": "is not UTF-8 text",
}


@pytest.mark.parametrize("setting", ["data.path", "run.folder", "model.path", "data.cache.path", "run.export.folder"])
@pytest.mark.parametrize(("path", "what"), UNUSABLE.items(), ids=["nul", "user", "long", "long name", "utf-8"])
def test_impossible_path_is_refused(setting: str, path: str, what: str) -> None:
    with pytest.raises(RecipeError, match=what) as caught:
        read_text("schema: 1", overrides=[f"{setting}={path}"])
    (problem,) = caught.value.problems
    assert (problem.code, problem.where) == ("E1007", setting)
    assert len(str(caught.value)) < 200


def test_impossible_path_in_a_file_has_its_line() -> None:
    with pytest.raises(RecipeError, match=r"line 3 .*data\.path .*NUL") as caught:
        read_text('schema: 1\ndata:\n  path: "sha\\0pes"\nrun:\n  folder: ~nosuchuser/x\n')
    assert [problem.line for problem in caught.value.problems] == [3, 5]


def test_unencodable_text_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"run\.allow_change .*E1004 is not UTF-8 text"):
        read_text("schema: 1", overrides=["run.allow_change=[x\udcff]"])
    with pytest.raises(RecipeError, match=r"sample\.prompts .*E1007 is not UTF-8 text"):
        read_text("schema: 1", overrides=["sample.prompts=x\udcff"])


def test_non_utf8_current_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    monkeypatch.chdir(os.fsdecode(folder))
    with pytest.raises(RecipeError, match=r"run\.export\.folder .*E1007 is not UTF-8 text"):
        resolve_paths(read_text("schema: 1", overrides=["run.export.folder=models"]))


def test_long_shard_pattern_is_not_a_long_name() -> None:
    pattern = "shards/{" + ",".join(f"{number:03}" for number in range(100)) + "}.tar"
    assert read_text("schema: 1", overrides=[f"data.path={pattern}"]).recipe.data.path == Path(pattern)


@pytest.mark.parametrize("name", ["~nosuchuser/x.yaml", "a" * 5000 + ".yaml"])
def test_impossible_recipe_name_is_not_found(name: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read(name)
    assert caught.value.code == "E1011"


@pytest.mark.parametrize("name", [name for name in shipped_recipes() if name.startswith(("sd15", "sd21", "sdxl"))])
def test_full_size_recipes_export_one_half_precision_file(name: str) -> None:
    recipe = read(name).recipe
    export = recipe.run.export
    if recipe.model.has_adapter:
        assert (export.adapter, export.dtype) == ("auto", "fp16")
    else:
        assert (export.single_file, export.single_file_dtype) == (True, "fp16")
