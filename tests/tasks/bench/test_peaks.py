"""Peak FLOPS of devices."""

from __future__ import annotations

import pytest

from mezzotint.tasks.bench._peaks import PEAKS, peak_flops


def test_peak_flops_are_found_by_device_name() -> None:
    for name, precision, tf32, teraflops in (
        ("NVIDIA H200", "bf16", False, 989.4), ("NVIDIA H100 80GB HBM3", "fp16", False, 989.4),
        ("NVIDIA H100 PCIe", "bf16", False, 756.5), ("NVIDIA A100-SXM4-80GB", "bf16", False, 312.0),
        ("NVIDIA A100-SXM4-80GB", "fp32", True, 156.0), ("NVIDIA A100-SXM4-80GB", "fp32", False, 19.5),
        ("Tesla V100-SXM2-16GB", "fp16", False, 125.0), ("Tesla V100-PCIE-32GB", "fp16", False, 112.0),
        ("Tesla V100S-PCIE-32GB", "fp32", False, 16.4), ("NVIDIA B200", "fp32", True, 1100.0),
        ("NVIDIA A10G", "fp32", False, 31.52), ("NVIDIA GeForce RTX 4090", "bf16", False, 165.2),
        ("NVIDIA L4", "bf16", False, 121.0), ("NVIDIA L40S", "bf16", False, 362.05), ("Tesla T4", "fp32", True, 8.1),
    ):  # fmt: skip
        assert peak_flops(name, precision, tf32=tf32) == pytest.approx(teraflops * 1e12), name
    unknown = ("AMD Something", "Tesla T4", "NVIDIA H200 MIG 1g.18gb", "NVIDIA GeForce RTX 4090 Laptop GPU",
               "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 5090 D")  # fmt: skip
    assert [name for name in unknown if peak_flops(name, "bf16", tf32=False)] == []
    assert all(p.half >= (p.tf32 or p.fp32) >= p.fp32 > 0 for p in PEAKS)
