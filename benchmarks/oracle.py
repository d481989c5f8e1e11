"""Ask vLLM itself about what is recommended: the command, and the kernels that its layers get.

    PYTHONPATH=advisor python benchmarks/oracle.py ask ~/vllm/bin/python ../shared/models --answers answers.jsonl
    PYTHONPATH=advisor python benchmarks/oracle.py table ../shared/models --answers answers.jsonl > benchmarks/oracle.md

For every kind of checkpoint in the catalog (architecture × quantization method × scheme: the smallest of each) and
every device of `DEVICES`, the best plan on the smallest machine of 1, 2, 4 or 8 devices that fits is put to vLLM 0.33.0
under a stand-in of the device. `ask` may be stopped and goes on where it was: an answer is kept by device, command and
environment. `table` compares those answers with our picks of this moment; it needs no vLLM. The folder holds the
published configs as `<publisher>--<name>.json`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.candidates import Restrictions
from vllm_advisor.catalog import gpus, models
from vllm_advisor.errors import AdvisorError, EngineError
from vllm_advisor.facts import Facts
from vllm_advisor.recommend import recommend
from vllm_advisor.vllm import surface
from vllm_advisor.vllm.oracle import Oracle
from vllm_advisor.vllm.oracle_compare import cells
from vllm_advisor.vllm.oracle_device import stand_in
from vllm_advisor.vllm.oracle_model import renamed, write
from vllm_advisor.vllm.oracle_verdict import verdict
from vllm_advisor.workload import PRESETS


if TYPE_CHECKING:
    from vllm_advisor.facts import Ranked

VERSION = "0.33.0"
DEVICES = ("L40S", "A100", "H100", "B200", "RTX PRO 6000", "MI300X", "MI355X")
SIZES = (1, 2, 4, 8)
# Trimmed by whoever collected them: the published files have these.
MENDED: dict[str, dict[str, Any]] = {
    "sgl-project/DeepSeek-V4-Flash-FP8": {"model_type": "deepseek_v4", "expert_dtype": "fp8"},
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": {"max_position_embeddings": 131072},
    "XiaomiMiMo/MiMo-7B-Base": {
        "auto_map": {"AutoConfig": "configuration_mimo.MiMoConfig"},
        "sliding_window": None,  # its class drops it, since use_sliding_window is false
    },
}
# Put together from figures, without fields that vLLM reads (`mhc`, `mla_use_nope`): no vLLM could take the file.
INCOMPLETE = frozenset(("zai-org/GLM-5.3-Flash", "zai-org/GLM-5.3-Flash-BF16"))
MENDED_TEXT: dict[str, dict[str, Any]] = {
    "zai-org/GLM-4.5V": {"use_qk_norm": False},
    "zai-org/GLM-4.5V-FP8": {"use_qk_norm": False},
}
Env = tuple[tuple[str, str], ...]


class Question(NamedTuple):
    """One recommended command: the model, the device and how many of it."""

    model: str
    device: str
    count: int
    plan: Ranked

    @property
    def env(self) -> Env:
        return self.plan.command.env

    @property
    def key(self) -> str:
        """What an answer depends on."""
        env = " ".join(f"{name}={value}" for name, value in self.env)
        return f"{self.device} | {env} | {' '.join(self.plan.command.argv)}"


def chosen(folder: Path) -> list[str]:
    """The smallest checkpoint of each architecture, method and scheme, less what has no config here."""
    kinds: dict[tuple[str, str, str], tuple[bool, int, str]] = {}
    for name in models.names():
        spec = models.find(name)
        if spec is None or name in INCOMPLETE or not config_of(folder, name).is_file():
            continue
        if is_abbreviated(config(folder, name)):
            continue
        kind = (spec.architecture, spec.quantization.method, spec.quantization.scheme)
        rank = (spec.provenance != "verbatim", spec.weight_bytes, name)
        kinds[kind] = min(kinds.get(kind, rank), rank)
    return sorted(name for *_, name in kinds.values())


def others(folder: Path, number: int) -> list[str]:
    """A sample of the models that `chosen` leaves out: those by which nothing here was mended."""
    taken = {*chosen(folder), *INCOMPLETE}
    readable = [
        name
        for name in models.names()
        if name not in taken
        and (spec := models.find(name))
        and not spec.unknowns
        and config_of(folder, name).is_file()
        and not is_abbreviated(config(folder, name))
    ]
    random.Random(4).shuffle(readable)  # noqa: S311 - a sample that stays the same
    return sorted(readable[:number])


def asked_of(args: argparse.Namespace) -> list[str]:
    return others(args.configs, args.others) if args.others else chosen(args.configs)


def is_abbreviated(found: dict[str, Any]) -> bool:
    """Whether the collected file only hints at its quantization: no vLLM could read it."""
    return bool({"note", "weight"} & (found.get("quantization_config") or {}).keys())


def config_of(folder: Path, name: str) -> Path:
    return folder / f"{name.replace('/', '--')}.json"


def question(name: str, device: str) -> Question | None:
    """The best plan of this checkpoint on the smallest machine that fits, None where eight do not."""
    spec = models.find(name)
    if spec is None:
        return None
    for count in SIZES:
        try:
            node = gpus.node(f"{count}x{device}")
            facts = Facts(node, spec, PRESETS["chat"], surface.load(VERSION))
            found = recommend(facts, (), Restrictions(siblings=False), 1)
        except AdvisorError:
            continue
        if found.plans:
            return Question(name, device, count, found.plans[0])
    return None


def config(folder: Path, name: str) -> dict[str, Any]:
    """The published config, mended where the file's own note says that it differs from the published one."""
    found: dict[str, Any] = json.loads(config_of(folder, name).read_text(encoding="utf-8"))
    _name_method(found)
    _name_layers(found)
    if "text_config" in found:
        found["text_config"] |= MENDED_TEXT.get(name, {})
    return found | MENDED.get(name, {}) | (_nested(found, folder) if name == "MiniMaxAI/MiniMax-M3" else {})


def _name_method(found: dict[str, Any]) -> None:
    """ModelOpt's files name their maker, by which vLLM knows them; some collected ones were trimmed of it."""
    inside, beside = found.get("quantization_config"), found.get("hf_quant_config")
    if inside and "quant_algo" in inside:
        inside.setdefault("quant_method", "modelopt")
    if beside and "quantization" in beside:
        beside.setdefault("producer", {"name": "modelopt"})


def _name_layers(found: dict[str, Any]) -> None:
    """FP8's list of layers to leave alone names each in full; where one was put together, it has a name for all."""
    inside = found.get("quantization_config") or {}
    short = inside.get("modules_to_not_convert") or []
    if inside.get("quant_method") != "fp8" or any(".layers." in name for name in short):
        return
    layers = (found.get("text_config") or found).get("num_hidden_layers", 0)
    stems = [f"{whole}.{i}" for whole in ("model.layers", "model.language_model.layers") for i in range(layers)]
    inside["modules_to_not_convert"] = [*short, *(f"{stem}.{name}" for stem in stems for name in short)]


def _nested(found: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The collected file is flattened: nested again as in the published quantized one, which has the same parts."""
    like = json.loads(config_of(folder, "nvidia/MiniMax-M3-NVFP4").read_text(encoding="utf-8"))
    whole = {name: value for name, value in like.items() if "quant" not in name}
    whole["text_config"] = like["text_config"] | {n: v for n, v in found.items() if n in like["text_config"]}
    return whole


def kept(file: Path) -> dict[str, Any]:
    """Answers so far, by what they depend on; the last one of a key counts."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return {row["key"]: row["answer"] for row in map(json.loads, lines)}


def ask(args: argparse.Namespace) -> None:
    """Put every open question of the devices to a child of each device and environment."""
    names = asked_of(args)
    for device in args.devices:
        open_questions: dict[Env, list[Question]] = {}
        known = kept(args.answers)
        for asked in filter(None, (question(name, device) for name in names)):
            if asked.key not in known or (args.again and args.again in json.dumps(known[asked.key])):
                open_questions.setdefault(asked.env, []).append(asked)
        for env, group in open_questions.items():
            put(args, device, env, group)


def put(args: argparse.Namespace, device: str, env: Env, group: list[Question]) -> None:
    """One child after another until the group is answered: one that dies answers for the command it died of."""
    left = list(group)
    while left:
        run = args.answers.parent / "run" / "-".join([device, *map("=".join, env)]).replace(" ", "")
        oracle = Oracle(args.python, stand_in(gpus.node(f"8x{device}")), env, version=VERSION, run_folder=run)
        try:
            with oracle:
                while left:
                    answer(args, oracle, left[0])
                    left.pop(0)
        except EngineError as error:
            if not oracle.vllm:
                raise
            keep(args.answers, left.pop(0), {"engine": error.message})


def answer(args: argparse.Namespace, oracle: Oracle, asked: Question) -> None:
    begun = time.perf_counter()
    model = args.answers.parent / "models" / asked.model.replace("/", "--")
    write(config(args.configs, asked.model), model)
    found = oracle.raw(renamed(asked.plan.command.argv, model))
    keep(args.answers, asked, found)
    took = time.perf_counter() - begun
    print(f"{took:6.1f} s  {asked.device:13} {asked.count}x  {asked.model}", file=sys.stderr, flush=True)


def keep(file: Path, asked: Question, found: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps({"key": asked.key, "model": asked.model, "answer": found}) + "\n")


def table(args: argparse.Namespace) -> None:
    """Print the comparison of the answers with our picks of now."""
    from oracle_table import page  # noqa: PLC0415  a neighbour, found where this script lies

    known, names = kept(args.answers), asked_of(args)
    sys.stdout.write(page([row(name, device, known) for name in names for device in args.devices], VERSION))


def row(name: str, device: str, known: dict[str, Any]) -> Any:
    """What the page needs of one model on one device."""
    from oracle_table import Row  # noqa: PLC0415

    asked = question(name, device)
    if asked is None:
        return Row(name, device)
    found = known.get(asked.key)
    if found is None or "engine" in found:
        return Row(name, device, asked.count, died=found["engine"] if found else "")
    theirs = verdict(found)
    return Row(name, device, asked.count, theirs, cells(asked.plan.kernels, theirs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    asking = commands.add_parser("ask")
    asking.add_argument("python", type=Path)
    asking.set_defaults(run=ask)
    showing = commands.add_parser("table")
    showing.set_defaults(run=table)
    for one in (asking, showing):
        one.add_argument("configs", type=Path)
        one.add_argument("--answers", type=Path, required=True)
        one.add_argument("--devices", nargs="+", default=DEVICES)
        one.add_argument("--others", type=int, default=0, help="so many models that are not among those kinds instead")
        one.add_argument("--again", default="", help="ask again where the answer has this text")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
