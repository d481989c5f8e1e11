"""Batching, environment variables, length, hardware, and what the version takes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from vllm_advisor.hardware import Vendor
from vllm_advisor.rules import views
from vllm_advisor.units import count
from vllm_advisor.vllm import archs, backends, backends_table, plugin, schemes
from vllm_advisor.workload import Objective


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.facts import Case
    from vllm_advisor.vllm.surface import Surface


def more_sequences_than_state_blocks(case: Case) -> Mapping[str, Any] | None:
    """Each running request of a hybrid model holds one state block."""
    if not case.facts.model.is_hybrid or case.plan.enforce_eager or case.budget.num_blocks <= 0:
        return None
    seqs, blocks = case.plan.max_num_seqs, case.budget.num_blocks
    return {"seqs": seqs, "blocks": blocks} if seqs > blocks else None


def fewer_tokens_than_sequences(case: Case) -> Mapping[str, Any] | None:
    """A decode step of all sequences must fit the token budget."""
    tokens, seqs = case.plan.max_num_batched_tokens, case.plan.max_num_seqs
    return {"tokens": tokens, "seqs": seqs} if tokens < seqs else None


def requests_wait(case: Case) -> Mapping[str, Any] | None:
    """The plan runs fewer sequences than the load has in flight."""
    wanted = -(-case.facts.workload.concurrency // case.plan.data_parallel_size)
    seqs = case.plan.max_num_seqs
    return {"seqs": seqs, "wanted": wanted} if seqs < wanted else None


def long_prefill_steps(case: Case) -> Mapping[str, Any] | None:
    """A large token budget lets one prompt delay everybody's next token."""
    tokens = case.plan.max_num_batched_tokens
    if case.facts.workload.objective is not Objective.LATENCY or tokens <= 8192 or case.facts.workload.concurrency == 1:
        return None
    return {"tokens": count(tokens)}


def prompt_in_many_steps(case: Case) -> Mapping[str, Any] | None:
    """A prompt takes many steps of the token budget."""
    steps = -(-case.facts.workload.input_tokens // max(1, case.plan.max_num_batched_tokens))
    return {"steps": steps, "tokens": count(case.plan.max_num_batched_tokens)} if steps > 4 else None


def aiter_off(case: Case) -> Mapping[str, Any] | None:
    """CDNA3 or CDNA4 without its own kernels."""
    return {"arch": views.arch(case)} if views.arch(case) in archs.MI3XX and not schemes.uses_aiter(case.plan) else None


def aiter_where_it_is_not_built(case: Case) -> Mapping[str, Any] | None:
    """AITER asked for on a device without it."""
    if not case.plan.env or not schemes.uses_aiter(case.plan):
        return None
    return {"arch": views.arch(case)} if views.arch(case) not in archs.MI3XX | archs.RDNA4 else None


def variable_unknown(case: Case) -> Mapping[str, Any] | None:
    """A VLLM_ variable that the version does not register."""
    dead = [name for name, _ in case.plan.env if not case.facts.vllm.has_env(name)]
    return {"names": ", ".join(dead), "version": case.facts.vllm.version} if dead else None


def longer_than_the_model(case: Case) -> Mapping[str, Any] | None:
    """More tokens than the model has positions."""
    asked, most = case.plan.max_model_len, case.facts.model.max_position
    return {"asked": count(asked), "most": count(most)} if asked > most > 0 else None


def shorter_than_the_requests(case: Case) -> Mapping[str, Any] | None:
    """The workload's own requests would be refused."""
    needed, asked = views.needed_tokens(case), case.plan.max_model_len
    return {"needed": count(needed), "asked": count(asked)} if asked < needed else None


def latent_in_long_context(case: Case) -> Mapping[str, Any] | None:
    """Long contexts on MLA with TP: DCP would split the sequence."""
    plan = case.plan
    if not case.facts.model.uses_mla or plan.tensor_parallel_size == 1 or plan.decode_context_parallel_size > 1:
        return None
    return {"tokens": count(views.needed_tokens(case))} if views.needed_tokens(case) >= 65_536 else None


def figures_unverified(case: Case) -> Mapping[str, Any] | None:
    """Some numbers of the device come from weak sources."""
    gpu = views.gpu(case)
    return {"gpu": gpu.name, "fields": ", ".join(gpu.unverified)} if gpu.unverified else None


def memory_is_shared(case: Case) -> Mapping[str, Any] | None:
    """The CPU and everything on it use the same memory."""
    return {"gpu": views.gpu(case).name} if views.gpu(case).unified_memory else None


def devices_differ(case: Case) -> Mapping[str, Any] | None:
    """Not all devices are the same."""
    gpus = case.facts.node.gpus
    if len(gpus) == 1:
        return None
    first = gpus[0]
    if all(g is first or (g.name == first.name and g.memory_bytes == first.memory_bytes) for g in gpus):
        return None
    return {"names": ", ".join(sorted({g.name for g in gpus})), "least": views.gpu(case).name}


def on_cpu(case: Case) -> Mapping[str, Any] | None:
    """No GPU."""
    return {"arch": views.arch(case)} if views.gpu(case).vendor is Vendor.CPU else None


def compiled_on_cpu(case: Case) -> Mapping[str, Any] | None:
    """On a CPU, without --enforce-eager: vLLM hands the whole model to Inductor, which writes C++ and compiles it."""
    on_processor = views.gpu(case).vendor is Vendor.CPU
    return {} if on_processor and not case.plan.enforce_eager else None


_FLAGS = (
    ("performance_mode", "--performance-mode"),
    ("attention_backend", "--attention-backend"),
    ("moe_backend", "--moe-backend"),
    ("enable_eplb", "--enable-eplb"),
)


def flag_missing(case: Case) -> Mapping[str, Any] | None:
    """The plan uses a flag that the version does not have."""
    plan, surface = case.plan, case.facts.vllm
    missing = [flag for field, flag in _FLAGS if getattr(plan, field) and not surface.has_flag(flag)]
    return {"flags": ", ".join(missing), "version": surface.version} if missing else None


def moe_backend_unknown(case: Case) -> Mapping[str, Any] | None:
    """`--moe-backend` names none of the version's."""
    forced, surface = case.plan.moe_backend, case.facts.vllm
    return {"forced": forced, "version": surface.version} if forced and forced not in surface.moe_backends else None


def attention_backend_unknown(case: Case) -> Mapping[str, Any] | None:
    """`--attention-backend` names none of the version's."""
    forced, surface = case.plan.attention_backend, case.facts.vllm
    unknown = forced and forced.upper() not in surface.attention_backends
    return {"forced": forced, "version": surface.version} if unknown else None


def judged_by_a_neighbour(case: Case) -> Mapping[str, Any] | None:
    """Kernels are chosen from the tables of the nearest version that was read."""
    vllm = case.facts.vllm
    judge = backends_table.judge(vllm)
    return {"version": vllm.version, "tables": judge.version} if judge is not vllm else None


def choice_rests_on_the_unread(case: Case) -> Mapping[str, Any] | None:
    """A gate on the way to the chosen kernel asks what only the device, or a library there, can answer."""
    plan, model = case.plan, case.facts.model
    if plugin.serves(model, plan):
        return None
    method = schemes.method_of(model, plan)
    parts = [("linear layers", scheme, schemes.uses_aiter(plan)) for scheme in views.linear_schemes(case)]
    if model.moe is not None:
        parts.append(("experts", views.expert_scheme(case), schemes.aiter_experts(plan)))
    for part, scheme, on in parts:
        note = _unread(case.facts.vllm, views.arch(case), (part == "experts", scheme, model.model_type, method), on)
        if note:
            found = {"part": part, "scheme": scheme.replace("_", " "), "note": note}
            return {"version": case.facts.vllm.version} | found
    return None


@functools.lru_cache(maxsize=1024)
def _unread(surface: Surface, arch: str, part: tuple[bool, str, str, str], on: bool) -> str | None:
    moe, scheme, model_type, method = part
    return backends.unverified(surface, arch, scheme, moe=moe, aiter=on, model_type=model_type, method=method)
