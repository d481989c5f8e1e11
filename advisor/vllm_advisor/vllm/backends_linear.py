"""What the linear layers' kernels compute in. Names are vLLM's class names without the common tail."""

from __future__ import annotations


WEIGHT_ONLY = frozenset((
    "MarlinFP8", "MarlinMxfp8", "MarlinMxFp4", "MarlinNvFp4", "Marlin", "HummingFP8", "HummingMxfp8", "HummingMxFp4",
    "HummingNvFp4", "Humming", "Machete", "RDNA3W4A16", "RDNAHybridW4A16", "HybridW4A16", "TritonW4A16", "CPUWNA16",
    "Dynamic4bit", "CPUFp8Block", "CPUFp8PerTensor", "CPUFp8ChannelWise", "FlashInferCuteDslNvFp4W4A16", "AutoAWQ",
    "Unquantized",
))  # fmt: skip
EIGHT_BIT = frozenset(("Rdna3W4A8MxFp4",))
EMULATED = frozenset(("EmulationMxfp8", "EmulationMxfp4", "EmulationNvFp4"))
