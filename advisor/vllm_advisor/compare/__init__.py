"""`advisor compare`: one model on one machine in several formats side by side, each as its best plan."""

from vllm_advisor.compare.compare import Comparison, Row, compare
from vllm_advisor.compare.formats import Format, formats, parse


__all__ = ["Comparison", "Format", "Row", "compare", "formats", "parse"]
