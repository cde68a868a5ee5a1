"""Peak FLOP/s of devices, which with the FLOPs of a step (`tasks.check.flops`) give the model FLOP utilisation
(MFU)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peak:
    """Dense peak of a device in TFLOP/s, from its data sheet. half: fp16 with float32 accumulation, and bf16 on devices
    with TF32. tf32, fp32: float32 products with and without TF32; None if the device does not support it."""

    name: str
    half: float
    tf32: float | None
    fp32: float


PEAKS = (
    Peak("B200", 2250.0, 1100.0, 75.0),
    Peak("GH200", 989.4, 494.7, 66.9),
    Peak("H200 NVL", 835.5, 417.7, 60.0),
    Peak("H200", 989.4, 494.7, 66.9),
    Peak("H100 PCIe", 756.5, 378.0, 51.2),
    Peak("H100 NVL", 835.5, 417.7, 60.0),
    Peak("H100", 989.4, 494.7, 66.9),
    Peak("A100", 312.0, 156.0, 19.5),
    Peak("A40", 149.7, 74.8, 37.4),
    Peak("A10G", 70.0, 35.0, 31.52),
    Peak("A10", 125.0, 62.5, 31.2),
    Peak("RTX A6000", 154.8, 77.4, 38.7),
    Peak("RTX 6000 Ada", 364.2, 182.1, 91.1),
    Peak("L40S", 362.05, 183.0, 91.6),
    Peak("L40", 181.05, 90.5, 90.5),
    Peak("L4", 121.0, 60.0, 30.3),
    Peak("RTX 5090", 209.5, 104.8, 104.8),
    Peak("RTX 4090", 165.2, 82.6, 82.6),
    Peak("RTX 4080", 97.5, 48.7, 48.7),
    Peak("RTX 3090", 71.0, 35.6, 35.6),
    Peak("V100S", 130.0, None, 16.4),
    Peak("V100 PCIE", 112.0, None, 14.0),
    Peak("V100 SXM2", 125.0, None, 15.7),
    Peak("T4", 65.0, None, 8.1),
)
"""Dense figures: half of the figure where a data sheet only gives one with structured sparsity. SXM boards unless the
name says otherwise. The first name that a device's name contains applies, so longer names precede shorter ones.

Sources, all from NVIDIA: the data sheets of HGX B200, GH200, H200, H100, A100, A40, A10, A10G, RTX A6000, RTX 6000 Ada,
L40S, L40, L4, V100 and T4; for GeForce the appendices of the whitepapers on GA102 (2020), Ada (2022) and RTX Blackwell
(2025), fp16 with float32 accumulation.
"""

_ANOTHER_DEVICE = frozenset({"Ti", "SUPER", "D", "Laptop", "Max", "Mobile", "MIG"})
"""Words in a device's name that mark another device than the name before them, or a part of one."""

SOURCE = "dense peak in the vendor's data sheet"


def peak_flops(device_name: str, precision: str, *, tf32: bool) -> float | None:
    """A device's peak in floating-point operations per second; None for devices without a known data sheet, and for
    bf16 if the device does not support it.

    device_name: as torch reports it, such as "NVIDIA H200". precision: "fp32", "bf16" or "fp16".
    """
    name_parts = device_name.replace("-", " ").split()
    if not _ANOTHER_DEVICE.isdisjoint(name_parts):
        return None
    for peak in PEAKS:
        if _contains(name_parts, peak.name.split()):
            match precision:
                case "bf16" if peak.tf32 is None:
                    return None
                case "bf16" | "fp16":
                    return peak.half * 1e12
                case "fp32":
                    return (peak.tf32 if tf32 and peak.tf32 is not None else peak.fp32) * 1e12
                case _:
                    raise AssertionError(precision)
    return None


def _contains(name_parts: list[str], part_sequence: list[str]) -> bool:
    return any(name_parts[i : i + len(part_sequence)] == part_sequence for i in range(len(name_parts)))
