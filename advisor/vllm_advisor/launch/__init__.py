"""Start one `vllm serve` child, wait until it answers, stop all of it: nothing is left running, the log is kept."""

from vllm_advisor.launch.child import Server
from vllm_advisor.launch.client import complete
from vllm_advisor.launch.signals import borrowed_signals


__all__ = ["Server", "borrowed_signals", "complete"]
