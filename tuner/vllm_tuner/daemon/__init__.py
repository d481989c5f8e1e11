"""The background re-tuning service: when a plan no longer fits, when it may be tuned again, and what is adopted."""
