"""Options and files of one trainer in a command of another: one clear error, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint import registry
from mezzotint.cli import main
from mezzotint.compat.kit import foreign

KOHYA = "train_network.py --pretrained_model_name_or_path=m --train_data_dir=d --resolution=64 --output_dir=o "
KOHYA += "--network_module=networks.lora"
MUSUBI = "zimage_train_network.py --dit=m --output_dir=o --network_module=networks.lora_zimage --optimizer_type=AdamW"
OPTIONS = 'pretrained_model_name_or_path = "m"\noutput_dir = "o"\n'
SETS = '[[datasets]]\n[[datasets.subsets]]\nimage_dir = "d"\n'
MUSUBI_SETS = '[[datasets]]\nimage_directory = "d"\ncache_directory = "c"\n'
JOB = "job: extension\nconfig:\n  name: a\n  process:\n  - type: sd_trainer\n    model: {name_or_path: m}\n"
JOB += "    datasets: [{folder_path: d}]\n    train: {network_dim: 4, max_train_steps: 5}\n"
GUI = '{"pretrained_model_name_or_path": "m", "output_dir": "o", "max_resolution": "64,64", "LoRA_type": "Standard"}'
ONE_TRAINER = '{"__version": 10, "training_method": "LORA", "base_model_name": "m", "learning_rate": 1e-4}'
SIMPLE_TUNER = '{"--model_type": "lora", "--data_backend_config": "b.json", "--learning_rate": 1e-4}'
PIPE = 'output_dir = "o"\ndataset = "d.toml"\nmicro_batch_size_per_gpu = 1\n[optimizer]\nlr = 1e-4\n'


def refused(
    capsys: pytest.CaptureFixture[str], name: str, line: str, files: dict[str, str], verb: str = "translate"
) -> str:
    """What is printed. The dialects of all trainers in a case must be there."""
    if not {"kohya", "musubi", "ai-toolkit"} <= {*registry.names("dialects")}:
        pytest.skip("needs the dialects of three trainers")
    for file, text in files.items():
        Path(file).write_text(text, "utf-8")
    assert main([verb, "--as", name, "--", *line.split()]) == 2
    assert {path.name for path in Path().iterdir()} == {*files}
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "line", "text", "sentences"),
    [
        ("kohya", f"{KOHYA} --dit=x", "", ["--dit", "it is an option of musubi; write --pretrained_model_name"]),
        ("kohya", f"{KOHYA} --text_encoder=x", "", ["it is an option of musubi; write --clip_l, --t5xxl or --clip_g"]),
        ("musubi", f"{MUSUBI} --enable_bucket", "", ["--enable_bucket", "it is an option of kohya; leave it out"]),
        ("kohya", f"{KOHYA} --config_file=a.toml", 'x = 1\nlora_rank = 3\nblocks_swap = 3\n',
         ["line 2", "lora_rank in a.toml", "it is an option of OneTrainer and SimpleTuner; write network_dim"]),
        ("kohya", f"{KOHYA} --dataset_config=a.toml", SETS.replace("image_dir", "image_directory"),
         ["line 3", "image_directory in a.toml", "it is an option of musubi; leave it out"]),
        ("ai-toolkit", "run.py a.yaml", JOB, ["train.network_dim in a.yaml", "train.max_train_steps in a.yaml",
                                              "kohya and musubi; write network.", "; write train.steps"]),
    ],
)  # fmt: skip
def test_option_of_another_trainer_is_named(
    name: str, line: str, text: str, sentences: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = "a.yaml" if "a.yaml" in line else "a.toml"
    error = refused(capsys, name, line, {file: text} if text else {}, "train")
    for sentence in sentences:
        assert sentence in error


@pytest.mark.parametrize(
    ("name", "line", "text", "sentence"),
    [
        ("kohya", "train_network.py --config_file job.yaml", JOB, "job.yaml is a job of ai-toolkit, for --as ai-tool"),
        ("musubi", "job.yaml", JOB, "is a job of ai-toolkit, for --as ai-toolkit"),
        ("ai-toolkit", "a.toml", OPTIONS, "is a file of options of sd-scripts, for --as kohya with --config_file"),
        ("ai-toolkit", "a.json", GUI, "is a settings file of the kohya_ss GUI, for --as kohya"),
        ("kohya", "train_network.py --config_file a.json", GUI, "a.json is a settings file of the kohya_ss GUI"),
        ("kohya", "train_network.py --config_file a.toml", SETS, "a data set file of sd-scripts, for --as kohya with "
         "--dataset_config"),
        ("kohya", f"{KOHYA} --dataset_config a.toml", OPTIONS, "a.toml is a file of options of sd-scripts"),
        ("kohya", f"{KOHYA} --dataset_config a.toml", MUSUBI_SETS, "a.toml is a data set file of musubi-tuner"),
        ("musubi", f"{MUSUBI} --dataset_config a.toml", SETS, "a.toml is a data set file of sd-scripts"),
        ("musubi", "zimage_train_network.py --config_file a.toml", OPTIONS, "a.toml is a file of options of sd-script"),
        *((name, f"{start}{file}", text, f"is a file of {trainer}, which Mezzotint does not read yet; `mezzotint ls")
          for name, start in (("kohya", "train_network.py --config_file "), ("ai-toolkit", "run.py "),
                              ("musubi", "zimage_train_network.py --config_file "))
          for file, text, trainer in (("a.json", ONE_TRAINER, "OneTrainer"), ("a.json", SIMPLE_TUNER, "SimpleTuner"),
                                      ("a.toml", PIPE, "diffusion-pipe"))),
        ("kohya", "a.json", ONE_TRAINER, "is a file of OneTrainer"),
        ("kohya", "a.yaml", "schema: 1\ndata: {path: d}\n", "is a recipe of Mezzotint: write it without --as"),
        ("kohya", "train_network.py --config_file a.yaml", "x: 1\n", "a.yaml is YAML, and the scripts read TOML"),
        ("kohya", "run.py job.yaml", JOB, "run.py is a script of another trainer; write --as ai-toolkit"),
        ("ai-toolkit", KOHYA, "", "train_network.py is a script of another trainer; write --as kohya"),
        ("kohya", "zimage_cache_latents.py --vae=v", "", "is a script of another trainer; write --as musubi"),
        ("ai-toolkit", "run.py", "", "names no file of a job; write run.py FILE.yaml"),
    ],
)  # fmt: skip
def test_file_or_script_of_another_trainer_is_one_error(
    name: str, line: str, text: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(capsys, name, line, {line.split()[-1]: text} if text else {}, "check")
    assert sentence in error
    assert error.count("E10") == 1


def test_a_trainers_own_option_is_not_called_anothers() -> None:
    for trainer, dialect in foreign._dialects():
        specs = {row.flag: row for row in dialect.rows}
        assert all(trainer not in foreign.suggest(flag, specs).split(";")[0].split() for flag in specs)
