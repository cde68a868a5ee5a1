"""The lock file and the bill of materials: pins with hashes and licences from the report of pip."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import supply
from mezzotint.assets import ASSETS, LOSS_WEIGHTS

ROOT = Path(__file__).parents[2]


def package(name: str, version: str, **about: object) -> dict[str, object]:
    archive = {"archive_info": {"hashes": {"sha256": "ab" * 32}}, "url": "https://files/x.whl"}
    return {"metadata": {"name": name, "version": version, **about}, "download_info": archive}


REPORT = {
    "install": [
        {"metadata": {"name": "mezzotint", "version": "0"}, "download_info": {"url": "file:///x"}},
        package("Zoo_Keeper", "2.0+cpu", license_expression="MIT"),
        package(
            "apple", "1.0", license="A licence\n\nof many lines", classifier=["License :: OSI Approved :: BSD License"]
        ),
        package("bare", "3"),
    ]
}


def test_lock_has_hashes_and_the_bill_licences() -> None:
    packages = supply.of_report(REPORT)
    assert [(each["name"], each["licence"]) for each in packages] == [
        ("apple", "BSD License"), ("bare", "see the package"), ("Zoo_Keeper", "MIT"),
    ]  # fmt: skip
    assert f"Zoo_Keeper==2.0+cpu \\\n    --hash=sha256:{'ab' * 32}\n" in supply.lock(packages)
    components = {each["name"]: each for each in json.loads(supply.bill(packages))["components"]}
    zoo = components["Zoo_Keeper"]
    assert zoo["purl"] == "pkg:pypi/zoo-keeper@2.0%2Bcpu"
    assert zoo["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert zoo["licenses"] == [{"license": {"name": "MIT"}}]
    assert components["uPlot"]["licenses"] == [{"license": {"id": "MIT"}}]
    assert components["uPlot"]["properties"] == [{"name": "file", "value": "LICENSES/uplot.txt"}]
    assert supply.bill(packages) == supply.bill(packages[::-1])


def test_lock_and_bill_match_the_pins() -> None:
    pin = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
    entry = re.compile(r"(\S+)==(\S+) \\\n +--hash=sha256:([0-9a-f]{64})")
    pinned = pin.findall((ROOT / "constraints.txt").read_text("utf-8"))
    pins = {supply.canonical(name): version for name, version in pinned}
    text = supply.LOCK.read_text("utf-8")
    locked = entry.findall(text)
    assert len(locked) == text.count("==") > 100
    others = [name for name, version, _ in locked if pins.get(supply.canonical(name)) != version.partition("+")[0]]
    assert others == ["setuptools"], "a dependency of torch without a pin"
    names = {supply.canonical(name) for name, _, _ in locked}
    built_with = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    assert {re.match(r"[\w.-]+", one)[0] for one in built_with} <= names, (
        "otherwise the second line downloads packages without a hash"
    )
    assert "--no-build-isolation ." in text
    components = json.loads(supply.BILL.read_text("utf-8"))["components"]
    installed = {c["name"]: c["hashes"][0]["content"] for c in components if "purl" in c}
    assert installed == {name: digest for name, _, digest in locked}
    assert all(next(iter(c["licenses"][0]["license"].values())) for c in components)


def test_everything_shipped_has_a_licence() -> None:
    page = (ROOT / "LICENSES" / "README.md").read_text("utf-8")
    kinds = ("models", "data", "tokenizers")
    places = [ASSETS, *(ASSETS / kind for kind in kinds)]
    names = {path.name for place in places for path in place.iterdir() if path.is_dir()}
    names |= {path.name for path in LOSS_WEIGHTS.iterdir()}
    missing = {name for name in names if not re.search(rf"\b{re.escape(name)}`", page)}
    assert missing <= {*kinds, "recipes", "loss_weights", "__pycache__"}
