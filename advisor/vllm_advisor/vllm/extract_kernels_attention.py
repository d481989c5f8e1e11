"""The attention backends of one release: its platform's own selection, run for each device, cache dtype and head."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.vllm.extract_kernels_stub import configure
from vllm_advisor.vllm.extract_kernels_values import Instance, Member, Raised, Symbol, UnreadableError


if TYPE_CHECKING:
    from vllm_advisor.vllm.extract_kernels_run import Program

# Head sizes that are tried: those of models, and enough of the rest to tell a list from a rule.
HEADS = (
    16,
    32,
    36,
    40,
    48,
    56,
    64,
    72,
    80,
    88,
    96,
    112,
    120,
    128,
    144,
    160,
    192,
    224,
    256,
    264,
    288,
    320,
    384,
    512,
    576,
    640,
)
_USUAL = (64, 128, 576)
_SIXTEEN_BIT = ("auto", "float16", "bfloat16")
# Ordinary attention, multi-head latent attention, and the same with a top-k indexer: (MLA, sparse, head sizes).
CASES: dict[str, tuple[bool, bool, tuple[int, ...]]] = {
    "dense": (False, False, HEADS),
    "dense_mm_prefix": (False, False, HEADS),  # images attend to themselves in both directions (Gemma 3 and 4)
    "mla": (True, False, (320, 576)),
    "mla_sparse": (True, True, (576,)),
    "mla_sparse_512": (True, True, (512,)),
}


class Layer(NamedTuple):
    """What the selection is asked."""

    mla: bool
    sparse: bool
    head: int
    sinks: bool
    dtype: str
    mm_prefix: bool = False


class Attention:
    """The selection of one release on one device. `notes`: what could not be told, by backend."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.platform = program.name("platforms.current_platform")
        self.capability = program.world.capability(program)
        self.notes: dict[str, str] = {}
        cls = program.name("v1.attention.selector.AttentionSelectorConfig")
        self._known_words = {name for name, _ in program.fields(cls)}

    def backends(self, layer: Layer) -> tuple[str, ...]:
        """The backends that take the layer, in the platform's order."""
        before = len(self.program.unread)
        try:
            found = self._cpu(layer) if self.program.world.kind == "cpu" else self._valid(layer)
        except (Raised, UnreadableError) as error:
            if isinstance(error, UnreadableError) or isinstance(error.error, AttributeError):
                self.program.unread.append(f"selection: {error}")
            found = ()
        for note in self.program.unread[before:]:
            backend, _, expression = note.partition(": ")
            self.notes.setdefault(backend, expression)
        return found

    def _config(self, layer: Layer) -> Instance:
        dtype = Symbol("torch.float16" if self.program.world.arch == "sm75" else "torch.bfloat16")
        words = {
            "head_size": layer.head,
            "dtype": dtype,
            "kv_cache_dtype": layer.dtype,
            "block_size": None,
            "use_mla": layer.mla,
            "has_sink": layer.sinks,
            "use_sparse": layer.sparse,
            "use_mm_prefix": layer.mm_prefix,
        }
        cls = self.program.name("v1.attention.selector.AttentionSelectorConfig")
        made: Instance = self.program.make(cls, [], {k: v for k, v in words.items() if k in self._known_words})
        return made

    def _valid(self, layer: Layer) -> tuple[str, ...]:
        """`get_valid_backends` of the platform, with as many query heads as MLA models have."""
        call = self.program.attribute(self.platform, "get_valid_backends")
        valid, _ = self.program.call(call, [self.capability, self._config(layer), 128], {})
        members = [next(p for p in self.program.items(candidate) if isinstance(p, Member)) for candidate in valid]
        return tuple(m.name for m in members)

    def _cpu(self, layer: Layer) -> tuple[str, ...]:
        """The CPU platform names one backend without asking it; what it is made with is asked here."""
        program = self.program
        config = self._config(layer)
        path = program.call(program.attribute(self.platform, "get_attn_backend_cls"), [None, config], {})
        enum = program.name("v1.attention.backends.registry.AttentionBackendEnum")
        member = next(m for m in program.members(enum).values() if m.value == path)
        cls = program.name(path.removeprefix("vllm."))
        gates: list[tuple[str, object]] = [("supports_head_size", layer.head)]
        gates += [] if layer.dtype in _SIXTEEN_BIT else [("supports_kv_cache_dtype", layer.dtype)]
        taken = all(program.truth(program.call(program.attribute(cls, gate), [asked], {})) for gate, asked in gates)
        return (member.name,) if taken else ()

    def table(self, case: str, dtype: str) -> tuple[tuple[str, str, str], ...]:
        """(backend, heads without sinks, heads with sinks) in the platform's order; "" takes none."""
        mla, sparse, heads = CASES[case]
        configure(self.program.world.config, cache_dtype=dtype, rope=heads != (512,))
        self.program.forget()
        found: dict[str, dict[bool, list[int]]] = {}
        order: list[str] = []
        for sinks in (False, True):
            for head in self._worth(case, dtype, sinks=sinks):
                names = self.backends(Layer(mla, sparse, head, sinks, dtype, case == "dense_mm_prefix"))
                order = _merged(order, names)
                for name in names:
                    found.setdefault(name, {False: [], True: []})[sinks].append(head)
        return tuple((n, heads_of(found[n][False], heads), heads_of(found[n][True], heads)) for n in order)

    def _worth(self, case: str, dtype: str, *, sinks: bool) -> tuple[int, ...]:
        """The head sizes to try: none where the sizes that every backend takes are refused."""
        mla, sparse, heads = CASES[case]
        usual = [h for h in heads if h in _USUAL] or heads
        return (
            heads
            if any(self.backends(Layer(mla, sparse, h, sinks, dtype, case == "dense_mm_prefix")) for h in usual)
            else ()
        )


def _merged(order: list[str], names: tuple[str, ...]) -> list[str]:
    """`order` with what is new in `names`, each before what follows it there."""
    for i, name in enumerate(names):
        if name not in order:
            later = [order.index(n) for n in names[i + 1 :] if n in order]
            order.insert(min(later, default=len(order)), name)
    return order


def heads_of(taken: list[int], tried: tuple[int, ...]) -> str:
    """The head sizes in short: `*` any; else sizes and rules from:to:step, where `to` 0 has no end: `8:256:8,512`."""
    if list(tried) == taken:
        return "*"
    for step in (8, 1):
        for high in reversed(taken):
            run = [h for h in tried if taken[0] <= h <= high and h % step == 0]
            if len(run) > 4 and run == taken[: len(run)]:
                end = 0 if high == tried[-1] else high
                start = step if taken[0] == tried[0] else taken[0]
                return ",".join((f"{start}:{end}:{step}", *map(str, taken[len(run) :])))
    return ",".join(map(str, taken))
