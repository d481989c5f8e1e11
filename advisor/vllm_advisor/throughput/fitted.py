"""Values of the speed model's parameters, written by benchmarks/fit_speed.py. Do not edit."""

from __future__ import annotations

from vllm_advisor.throughput.parameters import Parameters


#  name, value, unit, bounds, meaning
TABLE = (
    ("weights_share", 0.9282, "of bandwidth", 0.3, 0.95, "weights are read at"),
    ("kv_share", 0.95, "of bandwidth", 0.2, 0.95, "the KV cache is read at"),
    ("dense_share", 0.6718, "of peak", 0.1, 0.95, "linear layers in 16 bits compute at"),
    ("eight_share", 0.677, "of dense", 0.1, 1, "is left in 8 bits, of the 8-bit peak"),
    ("four_share", 0.5254, "of dense", 0.1, 1, "is left in 4 bits, of the 4-bit peak"),
    ("weight_only_share", 0.7235, "of dense", 0.2, 1, "is left where they are unpacked on the way"),
    ("weight_only_read", 0.85, "of weights", 0.3, 1, "packed weights are read at"),
    ("emulated_share", 0.3, "of dense", 0.05, 1, "is left where they are unpacked first"),
    ("expert_share", 0.4443, "of dense", 0.1, 1, "wide experts compute at"),
    ("narrow_width", 342.1, "columns", 50, 3000, "of an expert's slice that halve it"),
    ("expert_half", 24, "tokens", 1, 400, "more does an expert's product cost"),
    ("attention_share", 0.4453, "of peak", 0.05, 0.95, "attention of prompts computes at"),
    ("latent_share", 0.35, "of peak", 0.05, 0.95, "attention of MLA computes at in decode"),
    ("overlap", 2.559, "power", 1, 10, "of the mean that joins memory and compute"),
    ("layer_us", 16.93, "us", 2, 80, "a layer's kernels start and end, in a graph"),
    ("routed_layer_us", 56.31, "us", 2, 150, "routing adds to an expert layer"),
    ("recurrent_layer_us", 23, "us", 2, 100, "linear attention adds to a layer"),
    ("quantize_us", 3, "us", 0.5, 30, "activations to 8 bits add to a layer"),
    ("quantize_four_us", 6, "us", 0.5, 30, "activations to 4 bits add to a layer"),
    ("eager_layer_us", 241.1, "us", 20, 500, "launching a layer's kernels from Python takes"),
    ("prefill_layer_us", 30, "us", 1, 200, "a layer adds in a step with prompts"),
    ("step_us", 1657, "us", 100, 8000, "the host takes for a step"),
    ("request_us", 8.5, "us", 0.5, 100, "and for each request in it"),
    ("v0_factor", 6.41, "times", 1, 10, "more does V0's host take"),
    ("async_left", 0.4537, "of step", 0.05, 1, "is left where scheduling overlaps"),
    ("stream_us", 109.1, "us", 5, 300, "sending a token takes, beside the device"),
    ("tokenize_us", 3.4, "us", 0.2, 20, "a prompt's token takes beforehand"),
    ("frontend_ms", 4.036, "ms", 0.2, 30, "each new request takes from all"),
    ("first_token_ms", 32.85, "ms", 2, 100, "before a request's first step"),
    ("fast_hop_us", 14.5, "us", 2, 50, "a collective of 8 takes over NVLink or xGMI"),
    ("slow_hop_us", 15.01, "us", 5, 150, "and over PCIe or the host"),
    ("link_share", 0.8, "of link", 0.2, 1, "large collectives move at"),
    ("grouped", 1.853, "times", 1, 3, "longer do prompts take in DeepGEMM's experts"),
    ("ep_uneven", 1.464, "times", 1, 2, "the mean has the fullest EP rank"),
    ("ep_luck", 0.5, "", 0.05, 2, "of a Poisson maximum is seen"),
    ("dp_wait", 0.25, "of prefill", 0.01, 1, "of each other DP rank is waited for"),
    ("routing_skew", 0.9, "of tokens", 0.1, 1, "count as routed independently"),
    ("bunching", 3.606, "times", 0.3, 30, "longer than at random, prompts queue"),
    ("spread_tail", 1.188, "times", 0.05, 4, "the mean length, the last ones decode"),
    ("spread_skew", 0.7, "", 0.02, 3, "more do stalls weigh where lengths differ"),
    ("accepted", 0.75, "chance", 0.3, 0.95, "that a guessed token is right"),
    ("ampere", 0.9942, "of Hopper", 0.4, 2, "is reached of the device's peaks on sm80"),
    ("blackwell", 1.131, "of Hopper", 0.4, 2, "on sm100 and sm103"),
    ("geforce", 1.143, "of Hopper", 0.4, 2, "on GeForce, RTX and Ada"),
    ("cdna3", 0.3854, "of Hopper", 0.2, 2, "on MI200 and MI300"),
    ("cdna4", 0.7098, "of Hopper", 0.2, 2, "on MI350"),
    ("radeon", 0.5527, "of Hopper", 0.2, 2, "on Radeon and Strix Halo"),
    ("amd_overhead", 2.147, "times", 0.5, 5, "the fixed costs of NVIDIA's layers, on AMD"),
)  # fmt: skip

FITTED = Parameters(*(row[1] for row in TABLE))
