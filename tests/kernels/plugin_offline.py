"""Serve each model folder of a job file on this Python's vLLM, in this process, and write what it did.

    python plugin_offline.py ASKED.json RESULTS.json

A job has `name`, `model`, vLLM's `options`, how many `letters` of the text it takes, and layers to `ignore`. It gets
the bytes of its linear weights, the greedy continuation of a prompt and the logits of every position of the text; a
pair of jobs gets the mean KL divergence of the second from the first. The logits are taken where the model makes them:
prompt log-probabilities are made of them, but come as Python objects, 49,152 a position.
"""

import gc
import json
import os
import sys
from pathlib import Path


os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
LENGTH = 512
PROMPT = "The capital of France is"
TEXT = """A river begins where rain collects. Small streams run down the slopes of a mountain, meet in the valley, and
become one stream that is wide enough to have a name. On its way to the sea it carries sand and stones, and where the
land is flat it lays them down again. People have always lived near rivers. They drank the water, caught the fish,
watered their fields, and moved heavy things by boat long before there were roads. Many of the oldest cities stand at a
place where a river could be crossed, because travellers had to stop there, and where travellers stop, others sell them
food and a bed for the night. A bridge made such a place even better. In the nineteenth century engineers learned to
build with iron, and bridges became longer than anybody had thought possible. At the same time factories began to use
rivers in a new way: water turned their wheels, cooled their machines, and took away what they no longer needed. Within
a few decades the fish were gone from some of the great rivers of Europe. It took a hundred years until laws and sewage
plants brought them back. Today a child can swim again in the Rhine at Basel, and salmon have been seen far up the
stream. What happened there shows two things. Nature is patient, and it recovers when it is given time. But it does not
recover by itself from everything, and the price of repair is always higher than the price of care."""


def main():
    asked = json.loads(Path(sys.argv[1]).read_text())
    logits = {}
    done = {job["name"]: serve(job, logits) for job in asked["jobs"]}
    kl = {f"{a} {b}": divergence(logits[a], logits[b]) for a, b in asked["pairs"]}
    Path(sys.argv[2]).write_text(json.dumps({"jobs": done, "kl": kl}))


def serve(job, logits):
    from vllm import LLM, SamplingParams

    os.environ["ADVISOR_MXFP4_IGNORE"] = job.get("ignore", "")
    llm = LLM(
        job["model"],
        max_model_len=LENGTH,
        max_num_seqs=2,
        max_num_batched_tokens=LENGTH,
        kv_cache_memory_bytes=1 << 27,
        enable_prefix_caching=False,
        **job["options"],
    )
    model = llm.llm_engine.model_executor.driver_worker.worker.model_runner.model
    text = llm.generate(PROMPT, SamplingParams(max_tokens=8, temperature=0), use_tqdm=False)[0].outputs[0].text
    logits[job["name"]] = positions(llm, model, TEXT[: job["letters"]])
    size = linear_bytes(model)
    del llm, model
    gc.collect()
    return {"text": text, "bytes": size}


def divergence(expected, found):
    """Mean over the positions of the sum of p · (log p − log q), in nats."""
    p, q = (logits.double().log_softmax(-1) for logits in (expected, found))
    return float((p.exp() * (p - q)).sum(-1).mean())


def positions(llm, model, text):
    """[tokens − 1, vocabulary] in float32."""
    from vllm import SamplingParams

    seen, compute = [], model.compute_logits

    def record(states, *rest):
        seen.append(compute(states, *rest))
        return seen[-1]

    model.compute_logits = record
    llm.generate(text, SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False)
    return max(seen, key=len).float()


def linear_bytes(model):
    """Of everything that is neither embedding, head, norm nor router."""
    names = ("embed", "lm_head", "norm", ".gate.", "router", "sinks", "bias")
    held = (p for name, p in model.named_parameters() if not any(part in name for part in names))
    return sum(p.numel() * p.element_size() for p in held)


if __name__ == "__main__":
    main()
