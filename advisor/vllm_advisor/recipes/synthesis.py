"""A recipe as the command that its own site would show for one machine, as its src/lib/command-synthesis.js puts it.

In this order, later words winning: base, variant, strategy with its parallel size, the strategy's overrides, those of
the hardware, then the features that are on by default. Clusters of several nodes, prefill and decode apart, and
KV-cache stores are left to the site.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.recipes.tree import Tree


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from vllm_advisor.recipes.hardware import Profile

SINGLE_TP = "single_node_tp"
# What the site's strategies add where a clone lacks the folder `strategies`.
_STRATEGIES = {
    "single_node_tp": ("--tensor-parallel-size", ()),
    "single_node_tep": ("--tensor-parallel-size", ("--enable-expert-parallel",)),
    "single_node_dep": ("--data-parallel-size", ("--enable-expert-parallel",)),
}


class Rendered(NamedTuple):
    """A command: argv from `vllm serve` on, its variables, and which variant and strategy it is of."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    variant: str
    strategy: str


def render(recipe: Tree, variant: str, machine: Profile, strategies: Mapping[str, Tree]) -> Rendered:
    """The command for a machine, of the variant of that key."""
    strategy = strategy_of(recipe, machine)
    layers = tuple(_layers(recipe, variant, strategy, strategies.get(strategy, Tree()), machine))
    words = [word for layer, _ in layers for word in layer]
    env: dict[str, str] = {}
    for _, variables in layers:
        env |= variables
    model = recipe.text("variants", variant, "model_id") or recipe.text("model", "model_id")
    return Rendered(("vllm", "serve", model, *_last_wins(words)), tuple(sorted(env.items())), variant, strategy)


def strategy_of(recipe: Tree, machine: Profile) -> str:
    """The recipe's default, else tensor parallelism, of those that it allows on one node of this hardware."""
    listed = [s for s in recipe.words("compatible_strategies") if s in _STRATEGIES] or [SINGLE_TP]
    opted = [s for s in recipe.at("strategy_hardware").names() if s in _STRATEGIES and s not in listed]
    allowed = [s for s in (*listed, *opted) if _supported(recipe, s, machine, listed=s in listed)]
    wanted = (recipe.text("default_strategy"), SINGLE_TP, *allowed)
    return next((s for s in wanted if s in allowed), listed[0])


def _supported(recipe: Tree, strategy: str, machine: Profile, *, listed: bool) -> bool:
    said = recipe.at("strategy_hardware", strategy).first(*machine.keys).value
    return listed if said is None else said != "unsupported"


Layer = tuple[tuple[str, ...], dict[str, str]]


def _layers(recipe: Tree, variant: str, name: str, strategy: Tree, machine: Profile) -> Iterator[Layer]:
    chosen, own = recipe.at("variants", variant), recipe.at("strategy_overrides", name)
    exact = chosen.at("hardware_overrides", machine.id) if machine.id else Tree()
    flag, switches = _STRATEGIES[name]
    yield recipe.words("model", "base_args"), recipe.variables("model", "base_env")
    yield _given(chosen)
    yield _given(exact)
    yield (
        (*(strategy.words("vllm_args") or switches), flag, str(_parallel(chosen, own, name, machine))),
        strategy.variables("env"),
    )
    yield (*own.words("extra_args"), *own.words("vllm_args")), own.variables("env") | own.variables("extra_env")
    yield from _of_hardware(recipe, chosen, own, machine)
    yield from _features(recipe, chosen, name, machine)


def _given(block: Tree) -> Layer:
    return block.words("extra_args"), block.variables("extra_env")


def _of_hardware(recipe: Tree, chosen: Tree, own: Tree, machine: Profile) -> Iterator[Layer]:
    """What the strategy says of the hardware takes the place of the recipe's and the variant's; exact devices last."""
    keys = [key for key in (machine.generation, machine.brand.lower()) if key]
    replaced = own.at("hardware_overrides").first(*keys)
    if replaced:
        yield _given(replaced)
    else:
        yield _given(recipe.at("hardware_overrides").first(*keys))
        yield _given(chosen.at("hardware_overrides").first(*keys))
    if machine.id:
        yield _given(own.at("hardware_overrides", machine.id))


def _parallel(chosen: Tree, own: Tree, strategy: str, machine: Profile) -> int:
    """The size: as declared, one device where the weights fit it, else all of the node."""
    if strategy != SINGLE_TP:
        return machine.devices
    for block in (chosen.at("tp"), own.at("tp")):
        declared = block.number() or block.first(*machine.keys).number()
        if declared:
            return min(int(declared), machine.devices)
    needed = chosen.number("vram_minimum_gb")
    return 1 if needed and needed <= machine.gigabytes else machine.devices


def _features(recipe: Tree, chosen: Tree, strategy: str, machine: Profile) -> Iterator[Layer]:
    """Features that are on unless somebody opts in; a variant that names modes of one turns it on."""
    opt_in, modes = recipe.words("opt_in_features"), chosen.at("default_modes")
    for name in recipe.at("features").names():
        feature = recipe.at("features", name)
        allowed = feature.words("strategies")
        if (name in opt_in and not modes.text(name)) or (allowed and strategy not in allowed):
            continue
        if feature.at("modes"):
            feature = feature.at("modes", _mode(feature, modes.text(name)))
        block = feature.at("hardware_overrides").first(*machine.keys)
        args = block if block.at("args").value is not None else feature
        env = block if block.at("env").value is not None else feature
        yield args.words("args"), env.variables("env")


def _mode(feature: Tree, wanted: str) -> str:
    keys = feature.at("modes").names()
    return next((key for key in (wanted, feature.text("default_mode"), *keys) if key in keys), "")


def _last_wins(words: Iterable[str]) -> tuple[str, ...]:
    """Each flag once, with its last value, where it stood last."""
    units: dict[str, tuple[str, ...]] = {}
    flag = ""
    for index, word in enumerate(words):
        if word.startswith("-"):
            flag = word
            units.pop(flag, None)
            units[flag] = (word,)
        else:
            key = flag or f"word {index}"
            units[key] = (*units.get(key, ()), word)
    return tuple(word for unit in units.values() for word in unit)
