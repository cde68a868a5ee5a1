"""What Mezzotint is built and installed with, to the byte: `requirements.lock`, pins with hashes for `pip install
--require-hashes`, and `bill-of-materials.cdx.json`, every package with its licence, in CycloneDX's form.

    python tools/supply.py            asks pip for the pins of constraints.txt; nothing is installed
    python tools/supply.py REPORT     from what `pip install --dry-run --report REPORT` has written

Hashes are of the files that pip chose for this machine: Linux on x86-64 with this Python, torch for the CPU.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = Path(__file__).parents[1]
LOCK, BILL = ROOT / "requirements.lock", ROOT / "bill-of-materials.cdx.json"
_EDITABLE = "editables"
"""What hatchling asks for besides, where a package is installed to be edited."""
_SHIPPED = (
    ("mezzotint", "Apache-2.0", "LICENSE"),
    ("open_clip vocabulary", "MIT", "LICENSES/open_clip.txt"),
    ("T5 tokenizer", "Apache-2.0", "LICENSE"),
    ("sentences of textual inversion", "MIT", "LICENSES/textual_inversion.txt"),
    ("uPlot", "MIT", "LICENSES/uplot.txt"),
    ("loss weights of ai-toolkit", "MIT", "LICENSES/ai_toolkit.txt"),
)
"""What lies in the package itself, with its licence and the file that has its words."""


def main(words: list[str]) -> int:
    """Writes both files."""
    report = json.loads(Path(words[0]).read_text("utf-8")) if words else read_packages()
    packages = of_report(report)
    LOCK.write_text(lock(packages), "utf-8")
    BILL.write_text(bill(packages), "utf-8")
    print(f"{len(packages)} packages in {LOCK.name} and {BILL.name}")
    return 0


def read_packages() -> dict[str, Any]:
    """What pip would install for `.[dev]` under the pins, and for what builds it."""
    built_with = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "report.json")
        ask = ["--dry-run", "--quiet", "--ignore-installed", "--report", str(place)]
        line = [sys.executable, "-m", "pip", "install", *ask, "--constraint", "constraints.txt", ".[dev]"]
        subprocess.run([*line, *built_with, _EDITABLE], cwd=ROOT, check=True)
        return dict(json.loads(place.read_text("utf-8")))


def of_report(report: dict[str, Any]) -> list[dict[str, str]]:
    """Name, version, SHA-256 and licence of each package, sorted; Mezzotint itself is not among them."""
    packages = []
    for one in report["install"]:
        about = one["metadata"]
        if about["name"] != "mezzotint":
            digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
            packages.append(
                {"name": about["name"], "version": about["version"], "sha256": digest, "licence": licence(about)}
            )
    return sorted(packages, key=lambda package: canonical(package["name"]))


def licence(about: dict[str, Any]) -> str:
    """What a package says of its licence, shortest form first; a whole text is cut to its first line."""
    classes = [text.rpartition(":: ")[2] for text in about.get("classifier", ()) if text.startswith("License")]
    said = about.get("license_expression") or (about.get("license") or "").strip()
    if not said or "\n" in said or len(said) > 80:
        said = "; ".join(text for text in classes if text != "OSI Approved") or said.partition("\n")[0].strip(" =")
    return said or "see the package"


def canonical(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock(packages: list[dict[str, str]]) -> str:
    """For pip."""
    head = (
        "# Written by tools/supply.py for Linux on x86-64, CPython 3.11 and torch for the CPU, which PyPI has not:\n"
        "# pip install --require-hashes --extra-index-url https://download.pytorch.org/whl/cpu -r requirements.lock\n"
        "# pip install --no-deps --no-build-isolation .\n"
    )
    lines = [f"{one['name']}=={one['version']} \\\n    --hash=sha256:{one['sha256']}\n" for one in packages]
    return head + "".join(lines)


def bill(packages: list[dict[str, str]]) -> str:
    """CycloneDX 1.6 as JSON, without a serial number and a time: the same packages make the same file."""
    shipped = [
        Component(
            name=name, bom_ref=name, type=ComponentType.LIBRARY if name == "mezzotint" else ComponentType.DATA,
            licenses=[DisjunctiveLicense(id=terms)], properties=[Property(name="file", value=file)],
        )
        for name, terms, file in _SHIPPED
    ]  # fmt: skip
    installed = []
    for package in packages:
        purl = PackageURL("pypi", None, canonical(package["name"]), package["version"])
        installed.append(
            Component(
                name=package["name"], version=package["version"], bom_ref=str(purl), purl=purl,
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=package["sha256"])],
                licenses=[DisjunctiveLicense(name=package["licence"])],
            )
        )  # fmt: skip
    document = json.loads(JsonV1Dot6(Bom(components=[*shipped, *installed])).output_as_string())
    fields = {name: document[name] for name in ("bomFormat", "specVersion", "version", "components")}
    return json.dumps(fields, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
