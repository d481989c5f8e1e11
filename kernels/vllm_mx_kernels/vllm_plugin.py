"""What vLLM loads at its start (entry point group `vllm.general_plugins`): it registers quantization `advisor_mxfp4`.

vLLM calls `register` in every process that it starts, possibly several times. A server that does not use the plugin
must not notice it, so nothing here raises: what cannot be registered is said in one line of the log.
"""

from __future__ import annotations

import importlib
import logging
import re

from vllm_mx_kernels.checkpoint_rules import NAME


SUPPORTED = ((0, 32), (0, 33))
_LOGGER = logging.getLogger("vllm.advisor_mxfp4")  # a child of vLLM's own, so that its handler and level apply


def register() -> None:
    """Register `advisor_mxfp4` with the vLLM of this process, or say in one line why not. Never raises."""
    try:
        _register()
    except Exception as error:  # noqa: BLE001  somebody's server starts here
        _LOGGER.warning("%s is not registered: %s: %s", NAME, type(error).__name__, error)


def _register() -> None:
    quantization = importlib.import_module("vllm.model_executor.layers.quantization")
    if NAME in quantization.QUANTIZATION_METHODS:
        return
    version = str(importlib.import_module("vllm").__version__)
    if not supports(version):
        _LOGGER.warning("%s is not registered: it supports vLLM %s, this is %s", NAME, supported_text(), version)
        return
    from vllm_mx_kernels.vllm_config import AdvisorMxfp4Config

    quantization.register_quantization_config(NAME)(AdvisorMxfp4Config)


def supports(version: str) -> bool:
    """Whether `0.32.0`, `0.33.1+cu130`, … is a release that the plugin was written for."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) in SUPPORTED


def supported_text() -> str:
    """`0.32 and 0.33`."""
    return " and ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
