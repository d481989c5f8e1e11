"""`advisor estimate`: the memory of one configuration that somebody already has, and of many rows of them."""

from vllm_advisor.estimate.configuration import Configuration, Estimated, estimate, fixes, objections, plan_of


__all__ = ["Configuration", "Estimated", "estimate", "fixes", "objections", "plan_of"]
