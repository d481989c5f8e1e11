"""A surface is made from source alone: a small stand-in package with vLLM's idioms, and with oddities."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_advisor.errors import BadInput
from vllm_advisor.hardware import Unknown
from vllm_advisor.vllm.extract import dumps, extract, main
from vllm_advisor.vllm.surface import load, surface_of


CONFIG = """
from dataclasses import field
from typing import Annotated, Literal
from pydantic import Field
from pkg.outside import Anything

Mode = Literal["auto", "fast"]
Wider = Literal[Mode, "slow"]
KIB = 1024
Loop = Again
Again = Loop

@config
class Inner:
    window: int = 3

class Table(dict[str, int]):
    pass

@config
class CacheConfig:
    SIZE: ClassVar[int] = 16
    block_size: int | None = Field(default=None, gt=0)
    share: float = Field(default=0.92, gt=0, le=1)
    mode: Mode = "auto"
    wider: Wider | None = "slow"
    any_text: Mode | str = "auto"
    names: list[str] = field(default_factory=list)
    picks: list[Mode] | None = None
    stars: list[str] = field(default_factory=lambda: ["*"])
    inner: Inner = Field(default_factory=Inner)
    table: Table = Field(default_factory=Table)
    limits: "dict[str, int]" = {}
    buffer: int = 4 * KIB**2
    token: bool | str | None = None
    on: bool = True
    level: Annotated[int, "doc"] = -1
    computed: int = os.cpu_count()
    looped: Loop = None
    foreign: Anything = None
"""
ARGS = """
import argparse
from pkg_config import nothing
from vllm.config.cache import CacheConfig, Mode

_GONE_DEPRECATION_MESSAGE = "--gone is deprecated and will be removed in v0.99."

@dataclass
class EngineArgs:
    block_size: int | None = None

    @staticmethod
    def add_cli_args(parser):
        cache_kwargs = get_kwargs(CacheConfig)
        cache_kwargs["wider"]["choices"].remove("fast")
        cache_kwargs["limits"]["type"] = json.loads
        group = parser.add_argument_group(title="CacheConfig", description=CacheConfig.__doc__)
        group.add_argument("--block-size", **cache_kwargs["block_size"])
        group.add_argument("--share", "--part", "-s", dest="share", **cache_kwargs["share"])
        group.add_argument("--mode", **{**cache_kwargs["mode"], "default": None})
        group.add_argument("--wider", **cache_kwargs["wider"])
        for name in ("any_text",):
            group.add_argument("--never", **cache_kwargs[name])
        group.add_argument("--any-text", **cache_kwargs["any_text"])
        if 1:
            group.add_argument("--names", **cache_kwargs["names"])
        group.add_argument("--picks", **cache_kwargs["picks"])
        group.add_argument("--stars", **cache_kwargs["stars"])
        inner_kwargs = cache_kwargs["inner"]
        inner_kwargs["default"] = argparse.SUPPRESS
        group.add_argument("--inner", **inner_kwargs)
        group.add_argument("--table", **cache_kwargs["table"])
        group.add_argument("--limits", **cache_kwargs["limits"])
        group.add_argument("--buffer", **cache_kwargs["buffer"])
        group.add_argument("--token", **cache_kwargs["token"])
        group.add_argument("--on", **cache_kwargs["on"])
        group.add_argument("--level", **cache_kwargs["level"])
        group.add_argument("--computed", **cache_kwargs["computed"])
        group.add_argument("--looped", **cache_kwargs["looped"])
        group.add_argument("--missing", **cache_kwargs["no_such_field"])
        group.add_argument(*names, help="no literal name")
        parser.add_argument("--device-kind", choices=["a"] + more(), default="a")
        parser.add_argument("--picked", choices=get_args(Mode), type=str)
        parser.add_argument("--count", type=int, default=2)
        parser.add_argument("--quiet", action="store_true", help="less")
        parser.add_argument(
            "--gone", action=argparse.BooleanOptionalAction, default=None, help=_GONE_DEPRECATION_MESSAGE
        )
        return parser

class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser, async_args_only=False):
        parser.add_argument("--log-requests", action=argparse.BooleanOptionalAction, default=False)
"""
FRONTEND = """
from typing import Literal

@config
class BaseFrontendArgs:
    chat_template: str | None = None

@config
class FrontendArgs(BaseFrontendArgs):
    port: int = 8000
    level: Literal["info", "debug"] = "info"

def make_arg_parser(parser):
    parser.add_argument("model_tag", type=str, nargs="?")
    parser.add_argument("--headless", action="store_true", default=False)
    parser = FrontendArgs.add_cli_args(parser)
    return parser
"""
ENVS = """
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    VLLM_ON: bool = False
    VLLM_SECONDS: int = 7
    VLLM_NAME: str | None = None
    VLLM_COMPUTED: bool = False

environment_variables: dict[str, Callable] = {
    "VLLM_ON": lambda: os.getenv("VLLM_ON", "True").lower() in ("true", "1"),
    "VLLM_SECONDS": lambda: int(os.environ.get("VLLM_SECONDS", "600")),
    "VLLM_NAME": lambda: os.getenv("VLLM_NAME"),
    "VLLM_COMPUTED": work_it_out,
    "VLLM_PICK": env_with_choices("VLLM_PICK", "a", ["a", "b"]),
    "VLLM_IF": lambda: int(os.environ["VLLM_IF"]) if "VLLM_IF" in os.environ else 5,
    **more,
    compute(): None,
}
"""
FILES = {
    "engine/arg_utils.py": ARGS,
    "config/cache.py": CONFIG + 'CacheDType = Literal["auto", "fp8"]\n',
    "entrypoints/openai/cli_args.py": FRONTEND,
    "envs.py": ENVS,
    "model_executor/layers/quantization/__init__.py": """
        QuantizationMethods = Literal["fp8", "mxfp4"]
        DEPRECATED_QUANTIZATION_METHODS = ["old"]
    """,
    "config/quantization.py": "_ONLINE_SHORTHANDS: dict = {'fp8': Spec(1), **others}\n",
    "reasoning/__init__.py": "_REASONING_PARSERS_TO_REGISTER = {'qwen3': ('file', 'Class')}\n",
    "v1/attention/backends/registry.py": """
        class AttentionBackendEnum(Enum):
            FLASH_ATTN = "a.b.C"
            _private = 1
            x: int
    """,
    "model_executor/models/registry.py": """
        _TEXT_GENERATION_MODELS = {"LlamaForCausalLM": ("llama", "LlamaForCausalLM")}
        _VLLM_MODELS = {**_TEXT_GENERATION_MODELS, **unknown()}
        _PREVIOUSLY_SUPPORTED_MODELS = {"OldForCausalLM": "0.1.0", "Odd": compute()}
    """,
    "config/kernel.py": "def broken(:\n",
}


@pytest.fixture
def package(tmp_path):
    """The stand-in package, unpacked."""
    write(tmp_path, FILES)
    return tmp_path


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def flag(package, name):
    return surface_of(extract(package, "9.9.9")).flags[name]


@pytest.mark.parametrize(
    ("name", "kind", "default", "choices"),
    [
        ("--block-size", "int", None, ()),
        ("--share", "float", 0.92, ()),
        ("--mode", "str", None, ("auto", "fast")),
        ("--wider", "str", "slow", ("auto", "slow")),
        ("--any-text", "str", "auto", ()),
        ("--names", "list", [], ()),
        ("--picks", "list", None, ("auto", "fast")),
        ("--stars", "list", ["*"], ()),
        ("--inner", "json", None, ()),
        ("--table", "json", {}, ()),
        ("--limits", "json", {}, ()),
        ("--buffer", "int", 4 * 1024 * 1024, ()),
        ("--token", "optional-str", None, ()),
        ("--on", "bool", True, ()),
        ("--level", "str", "info", ("info", "debug")),
        ("--picked", "str", None, ("auto", "fast")),
        ("--count", "int", 2, ()),
        ("--quiet", "switch", False, ()),
        ("--headless", "switch", False, ()),
        ("--port", "int", 8000, ()),
        ("--chat-template", "str", None, ()),
        ("--log-requests", "bool", False, ()),
    ],
)
def test_a_flag_is_read_as_the_parser_would_build_it(tmp_path, name, kind, default, choices):
    """Types, defaults and choices come from the config field and from what the registration overrides."""
    write(tmp_path, {**FILES, "engine/arg_utils.py": ARGS.replace('"--level"', '"--depth"')})
    found = flag(tmp_path, name)
    assert (kind, default, choices) == (found.kind, found.default, found.choices)


def test_aliases_field_and_group_of_a_flag(package):
    """A flag keeps its other spellings, its argument name and its group."""
    found = flag(package, "--share")
    assert (("--part", "-s"), "share", "CacheConfig") == (found.aliases, found.field, found.group)


@pytest.mark.parametrize("name", ["--computed", "--missing"])
def test_a_default_that_is_computed_is_unread(package, name):
    """A value that only running the code would tell is Unknown with its expression."""
    assert isinstance(flag(package, name).default, Unknown)


def test_what_was_not_read_is_listed(package):
    """A registration by no literal name, choices by the device, and a file that is no Python are all said."""
    unread = extract(package, "9.9.9")["unread"]
    assert "choices of --device-kind depend on the device" in unread
    assert "config/kernel.py: SyntaxError" in unread
    assert "nothing read of moe_backends" in unread
    assert any("by no literal name" in text for text in unread)


def test_a_flag_that_announces_its_end(package):
    """The version of the announced removal is kept."""
    assert {"--gone": "0.99"} == extract(package, "9.9.9")["deprecated_flags"]


@pytest.mark.parametrize(
    ("name", "kind", "default"),
    [
        ("VLLM_ON", "bool", True),
        ("VLLM_SECONDS", "int", 600),
        ("VLLM_NAME", "str", None),
        ("VLLM_PICK", "str", "a"),
        ("VLLM_IF", "int", 5),
    ],
)
def test_a_variable_has_the_default_of_its_getter(package, name, kind, default):
    """The getter's fallback counts, not what is declared for the type checker."""
    found = surface_of(extract(package, "9.9.9")).env[name]
    assert (kind, default) == (found.kind, found.default)


def test_a_variable_that_is_computed_is_unread(package):
    """A getter that is a function of its own has an unknown default."""
    assert isinstance(surface_of(extract(package, "9.9.9")).env["VLLM_COMPUTED"].default, Unknown)


def test_names_are_read_where_they_stand(package):
    """Methods, parsers, backends and architectures are lists of names."""
    raw = extract(package, "9.9.9")
    assert (["fp8", "mxfp4"], ["old"], ["fp8"]) == (
        raw["quantizations"], raw["deprecated_quantizations"], raw["online_quantizations"],
    )  # fmt: skip
    assert (["qwen3"], ["FLASH_ATTN"], ["auto", "fp8"]) == (
        raw["reasoning_parsers"], raw["attention_backends"], raw["kv_cache_dtypes"],
    )  # fmt: skip
    assert {"text_generation": ["LlamaForCausalLM"]} == raw["architectures"]
    assert {"OldForCausalLM": "0.1.0"} == raw["removed_architectures"]


def test_the_json_is_what_was_extracted(package):
    """The written form reads back as the same values."""
    raw = extract(package, "9.9.9")
    assert raw == json.loads(dumps(raw))


def test_a_cpu_build_is_told_by_its_libraries(package):
    """The CPU wheel carries libraries by instruction set."""
    (package / "_C_AVX2.abi3.so").touch()
    assert "cpu" == extract(package, "9.9.9")["build"]


def test_a_folder_that_is_no_vllm_is_bad_input(tmp_path):
    """No package, no surface."""
    with pytest.raises(BadInput):
        extract(tmp_path, "9.9.9")


def test_the_command_prints_a_surface(package, capsys):
    """`python -m vllm_advisor.vllm.extract DIR VERSION` writes the JSON."""
    assert 0 == main([str(package), "9.9.9"])
    assert "9.9.9" == surface_of(json.loads(capsys.readouterr().out)).version


@pytest.mark.parametrize("argv", [[], ["x"], ["no/such/folder", "1.0.0"], ["a", "b", "c"]])
def test_the_command_refuses_what_it_cannot_read(argv, capsys):
    """Bad arguments are a line on stderr and exit code 2."""
    assert 2 == main(argv)
    assert "" != capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "", "\x00", "(" * 500, "x = " + "1*" * 20_000 + "1", "'\\d'", "class EngineArgs: pass",
        "class EngineArgs(*a): x: 1 = 2",
        "class EngineArgs:\n def add_cli_args(parser):\n  parser.add_argument('-x', **{**a, **b, 'default': c()})\n",
        "class EngineArgs:\n def add_cli_args(parser):\n  a = get_kwargs()\n  a['x']['y']['z'] = 1\n  b.add_argument()",
        "class EngineArgs:\n def add_cli_args(p):\n  p.add_argument('--x', default=" + "-" * 150 + "1)\n",
        "class EngineArgs:\n def add_cli_args(p):\n  p.add_argument('--x', default=" + "1+" * 5_000 + "1)\n",
    ],
)  # fmt: skip
def test_odd_source_is_never_a_traceback(package, text):
    """Empty, binary, deep or half-written source gives a surface with what was left, and says so."""
    (package / "engine" / "arg_utils.py").write_text(text)
    raw = extract(package, "9.9.9")
    assert "--port" in raw["flags"] or raw["unread"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_source_is_never_a_traceback(package, data):
    """Lines missing, doubled or cut anywhere in the package still give a surface."""
    name = data.draw(st.sampled_from(sorted(FILES)))
    lines = textwrap.dedent(FILES[name]).splitlines()
    kept = data.draw(st.lists(st.sampled_from(lines), max_size=len(lines)))
    cut = data.draw(st.integers(0, 40))
    (package / name).write_text("\n".join(kept)[: -cut or None])
    assert "9.9.9" == extract(package, "9.9.9")["version"]
    (package / name).write_text(textwrap.dedent(FILES[name]))


LIST_OPTIONS = """
import json, sys
sys.argv = ["vllm"]
import vllm.envs
from vllm.utils.argparse_utils import FlexibleArgumentParser
try:
    from vllm.entrypoints.common.cli_args import make_arg_parser
except ImportError:
    try:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser
    except ImportError:
        from vllm.entrypoints.openai.cli_args import make_arg_parser
actions = make_arg_parser(FlexibleArgumentParser())._actions
names = [name for a in actions for name in a.option_strings]
print(json.dumps({"version": vllm.__version__, "options": names, "env": list(vllm.envs.environment_variables)}))
"""


@pytest.mark.vllm
@pytest.mark.skipif("ADVISOR_VLLM_PYTHON" not in os.environ, reason="no vLLM in another environment")
def test_a_surface_has_what_the_real_parser_has(tmp_path):
    """The options and variables of an installed vLLM are exactly those of its surface, help aside."""
    argv = [os.environ["ADVISOR_VLLM_PYTHON"], "-c", LIST_OPTIONS]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=300)
    real = json.loads(done.stdout.splitlines()[-1])
    surface = load(real["version"])
    flags = surface.flags.values()
    ours = {n for f in flags for n in (f.name, *f.aliases)} | {f"--no-{f.name[2:]}" for f in flags if f.kind == "bool"}
    assert set(real["options"]) - {"-h", "--help"} == ours
    assert set(real["env"]) == set(surface.env)
