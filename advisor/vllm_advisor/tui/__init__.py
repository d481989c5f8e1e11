"""The wizard: from "these GPUs, that model" to a running, measured server, in a terminal.

It decides nothing. Every answer comes from `vllm_advisor.question` and the rooms behind it, profiles from
`vllm_advisor.profiles`, and the tuner is a child process that prints its events.
"""
