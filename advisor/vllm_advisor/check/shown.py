"""Which rules of the decision matrix the owner of a command hears: level, option, title; a table and nothing else."""

from __future__ import annotations

from typing import NamedTuple

from vllm_advisor.check.finding import ERROR, NOTE, WARNING


TP, PP, DP, DCP = (
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--decode-context-parallel-size",
)
KV, QUANT, EP, EPLB = "--kv-cache-dtype", "--quantization", "--enable-expert-parallel", "--enable-eplb"
SEQS, TOKENS, LENGTH, BLOCK = "--max-num-seqs", "--max-num-batched-tokens", "--max-model-len", "--block-size"
AITER = "VLLM_ROCM_USE_AITER"


class Shown(NamedTuple):
    """One rule as it is said of a command: its level, the options it is about, a title for documents.

    `needs`: what must be known of "model" and "node"; a rule that needs the model only is judged on a stand-in device.
    """

    level: str
    about: tuple[str, ...]
    title: str
    needs: str = "both"


# ruff: noqa: E501
# fmt: off
SHOWN: dict[str, Shown] = {
    "PAR-01": Shown(ERROR,   (TP,), "Attention heads that tensor parallelism does not divide", "model"),
    "PAR-02": Shown(ERROR,   (TP,), "KV heads that are neither split nor repeated evenly", "model"),
    "PAR-03": Shown(NOTE,    (TP,), "KV heads kept several times", "model"),
    "PAR-04": Shown(NOTE,    (TP,), "MLA's latent cache kept on each rank", "model"),
    "PAR-05": Shown(ERROR,   (TP, DP), "An expert cut through its blocks of scales", "model"),
    "PAR-06": Shown(NOTE,    (TP, DP), "Blocks of scales refined while loading", "model"),
    "PAR-07": Shown(ERROR,   (TP,), "A layer cut through its blocks of scales", "model"),
    "PAR-08": Shown(ERROR,   (TP,), "A layer cut through its groups of scales", "model"),
    "PAR-09": Shown(WARNING, (EP, TP), "Experts that do not divide over the ranks", "model"),
    "PAR-10": Shown(ERROR,   (EPLB,), "EPLB with unequal shares of experts", "model"),
    "PAR-11": Shown(ERROR,   (EP,), "Expert parallelism of a model without experts", "model"),
    "PAR-12": Shown(ERROR,   (EPLB,), "EPLB without expert parallelism", "any"),
    "PAR-13": Shown(ERROR,   (EPLB,), "EPLB on one rank", "any"),
    "PAR-14": Shown(NOTE,    (EP,), "Expert parallelism inside one node"),
    "PAR-15": Shown(ERROR,   (DCP,), "Decode context parallelism that does not divide TP", "any"),
    "PAR-16": Shown(ERROR,   (DCP,), "Decode context parallelism beyond the copies of KV heads", "model"),
    "PAR-17": Shown(ERROR,   (DCP,), "Query heads that decode context parallelism does not divide", "model"),
    "PAR-18": Shown(ERROR,   (TP, DP, PP), "More ranks than devices", "node"),
    "PAR-19": Shown(WARNING, (TP,), "Tensor parallelism beyond the devices that fast links join", "node"),
    "PAR-20": Shown(WARNING, (TP,), "Tensor parallelism over PCIe or the host", "node"),
    "PAR-21": Shown(WARNING, (TP,), "Tensor parallelism over the network", "node"),
    "PAR-22": Shown(NOTE,    (PP,), "Pipeline stages where tensor parallelism would do"),
    "PAR-23": Shown(ERROR,   (PP,), "More stages than layers", "model"),
    "PAR-24": Shown(NOTE,    (PP,), "Stages of unequal length", "model"),
    "PAR-27": Shown(ERROR,   (TP, DP, PP), "Ranks over MIG slices", "node"),
    "QNT-01": Shown(ERROR,   (), "A device that this vLLM does not support", "node"),
    "QNT-02": Shown(ERROR,   (), "An architecture that this version does not register", "model"),
    "QNT-04": Shown(ERROR,   (QUANT,), "bitsandbytes, which is gone", "model"),
    "QNT-05": Shown(ERROR,   (QUANT,), "The checkpoint's method is none of this version's", "model"),
    "QNT-06": Shown(ERROR,   (QUANT,), "A method that ROCm does not list"),
    "QNT-07": Shown(ERROR,   (QUANT,), "A device too old for the method"),
    "QNT-09": Shown(ERROR,   (QUANT,), "A conversion that this device or version cannot do"),
    "QNT-10": Shown(WARNING, (QUANT,), "A deprecated spelling of online quantization", "model"),
    "QNT-11": Shown(ERROR,   (QUANT,), "No kernel for the linear layers"),
    "QNT-12": Shown(ERROR,   (QUANT,), "No kernel for the experts"),
    "QNT-13": Shown(NOTE,    (QUANT,), "A way of storing weights that is not in our tables"),
    "QNT-14": Shown(WARNING, (QUANT,), "Weights unpacked by a step of their own"),
    "QNT-16": Shown(WARNING, (AITER,), "MXFP4 experts without AITER"),
    "QNT-17": Shown(NOTE,    (), "Block-FP8 in BF16 arithmetic on Ada"),
    "QNT-18": Shown(NOTE,    ("--dtype",), "Turing serves BF16 models in FP16"),
    "QNT-20": Shown(NOTE,    (QUANT,), "Weights converted at each start"),
    "QNT-23": Shown(WARNING, (QUANT,), "Converted for memory only"),
    "QNT-24": Shown(ERROR,   (QUANT, TP), "Inputs that groups of 32 do not divide, the vision tower's too", "model"),
    "QNT-28": Shown(ERROR,   (), "Weight-only NVFP4 layers on ROCm"),
    "QNT-29": Shown(ERROR,   (QUANT, EPLB, TP), "What our plugin does not serve"),
    "QNT-31": Shown(WARNING, (QUANT,), "Our plugin, for memory only"),
    "QNT-33": Shown(WARNING, (QUANT,), "FP8 by channel with AMX, before vLLM has a kernel for it"),
    "KV-01":  Shown(ERROR,   (KV,), "No attention backend takes the cache", "node"),
    "KV-03":  Shown(WARNING, (KV,), "e5m2: no smaller than e4m3, and coarser", "any"),
    "KV-04":  Shown(ERROR,   (KV,), "e5m2 with FP8 weights", "model"),
    "KV-06":  Shown(NOTE,    (KV,), "Only FlashInfer takes an FP8 cache on Ampere", "node"),
    "KV-07":  Shown(NOTE,    (KV,), "The cache's dtype moves attention to another backend"),
    "KV-08":  Shown(ERROR,   (KV,), "Attention sinks with an FP8 cache below sm89"),
    "KV-09":  Shown(ERROR,   (KV,), "No format for MLA's latent cache"),
    "KV-12":  Shown(ERROR,   (KV,), "A 16-bit cache in another dtype than the model", "model"),
    "KV-13":  Shown(NOTE,    (KV,), "The fixed state of a hybrid model stays as it is", "model"),
    "KV-16":  Shown(WARNING, (KV,), "A cache in four bits or fewer", "any"),
    "KV-17":  Shown(ERROR,   (BLOCK,), "A block size that MiniMax-M3 does not take", "model"),
    "KV-18":  Shown(ERROR,   ("--attention-backend", "--attention-config", KV), "The attention backend does not take the cache", "node"),
    "KV-21":  Shown(ERROR,   (KV,), "A quantized cache of keys wider than values"),
    "KV-22":  Shown(ERROR,   (KV,), "An FP8 cache for images that attend in both directions, below sm89"),
    "ACC-02": Shown(WARNING, (QUANT,), "Four bits while loading, with no calibration", "model"),
    "ACC-06": Shown(NOTE,    (QUANT,), "A checkpoint in that precision exists", "model"),
    "ACC-07": Shown(NOTE,    (QUANT,), "One scale a matrix, where finer ones cost nothing", "model"),
    "BAT-01": Shown(ERROR,   (SEQS,), "More sequences than state blocks"),
    "BAT-02": Shown(ERROR,   (TOKENS, SEQS), "Fewer tokens a step than sequences"),
    "ENV-01": Shown(WARNING, (AITER,), "AITER is off on a device that it is made for", "node"),
    "ENV-02": Shown(WARNING, (AITER,), "AITER on a device that it is not built for", "node"),
    "LNG-01": Shown(ERROR,   (LENGTH,), "Longer than the model", "model"),
    "HW-02":  Shown(NOTE,    (), "Memory shared with the CPU", "node"),
    "HW-03":  Shown(NOTE,    (), "Unlike devices", "node"),
    "PRV-01": Shown(NOTE,    (), "The model's description is not the published file", "model"),
}
# fmt: on
