"""Every finding of `advisor check`: id, usual level, title and where it comes from; ids never change meaning.

Ids of `rules/table.py` are reused where the finding is the same (ENV-03), and no other meaning is given to one of them.
Docs and SARIF rules are made from this table. A path is inside the `vllm` package of 0.33.0 unless a version is named.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_advisor.check.finding import ERROR, NOTE, WARNING
from vllm_advisor.check.ids_judged import JUDGED


class Id(NamedTuple):
    """One row. `level` is the usual one: a Finding may carry another, and says why."""

    id: str
    level: str
    title: str
    source: str


_PARSER = "utils/argparse_utils.py"
_ARGUMENTS = "engine/arg_utils.py"
_ENVS = "envs.py"
_CHECKED = "platforms/interface.py:1458 (validate_environ); 0.24.0 envs.py:1998"

# fmt: off
IDS: tuple[Id, ...] = (
    Id("FLG-01", ERROR,   "No vLLM that we know has this option", _ARGUMENTS),
    Id("FLG-02", ERROR,   "The option is gone from this version", _ARGUMENTS),
    Id("FLG-03", ERROR,   "The option came with a later version", _ARGUMENTS),
    Id("FLG-04", ERROR,   "An abbreviation that fits several options", "argparse (allow_abbrev); " + _PARSER),
    Id("FLG-05", WARNING, "An abbreviated option, which the next version may no longer understand", "argparse (allow_abbrev); " + _PARSER),
    Id("FLG-06", WARNING, "The option is deprecated in this version", _ARGUMENTS),
    Id("FLG-07", WARNING, "Given twice: the last one counts", _PARSER + " (duplicates)"),
    Id("FLG-08", ERROR,   "A word that is neither an option, a value nor the model", _PARSER),
    Id("FLG-09", WARNING, "The model is given by --model to `vllm serve`", _PARSER + " (parse_args)"),
    Id("FLG-10", WARNING, "No model is given: vLLM serves Qwen/Qwen3-0.6B", "config/model.py; entrypoints/cli/serve.py"),
    Id("FLG-11", ERROR,   "The API server's module reads no model without --model", "entrypoints/cli/serve.py:56 (only there)"),
    Id("FLG-12", ERROR,   "The configuration file is not read as it is given", _PARSER + " (_pull_args_from_config)"),
    Id("FLG-13", NOTE,    "The configuration file is not here, so what it says is not judged", "advice"),
    Id("FLG-14", WARNING, "`false` in a configuration file is dropped by this version", _PARSER + " (load_config_file)"),
    Id("FLG-15", WARNING, "Dotted keys replace the JSON that is given for the same option", _PARSER + " (dict_args)"),
    Id("FLG-16", NOTE,    "A value that only a run can tell", "advice"),
    Id("FLG-17", ERROR,   "--help prints text and starts nothing", "argparse"),
    Id("FLG-18", ERROR,   "--served-model-name without a model in front", _PARSER + " (parse_args)"),
    Id("VAL-01", ERROR,   "The option has no value", "argparse"),
    Id("VAL-02", ERROR,   "A switch with a value", "argparse (BooleanOptionalAction)"),
    Id("VAL-03", ERROR,   "Not a whole number", _ARGUMENTS),
    Id("VAL-04", ERROR,   "Not a number", _ARGUMENTS),
    Id("VAL-05", ERROR,   "Broken JSON", _ARGUMENTS),
    Id("VAL-06", ERROR,   "Not among the choices of the option", _ARGUMENTS),
    Id("VAL-07", ERROR,   "The parser takes the value, the configuration refuses it", "config/cache.py; config/attention.py; config/model.py"),
    Id("VAL-08", ERROR,   "Outside the range that the configuration allows", "config/"),
    Id("VAL-09", ERROR,   "A quantization method that needs --allow-deprecated-quantization", "config/model.py:1472-1485"),
    Id("ENV-03", WARNING, "vLLM does not know the variable, warns and ignores it", _CHECKED),
    Id("ENV-11", WARNING, "The variable is gone from this version", _CHECKED),
    Id("ENV-12", WARNING, "The variable came with a later version", _CHECKED),
    Id("ENV-13", ERROR,   "The variable's value cannot be read", _ENVS),
    Id("ENV-14", NOTE,    "The variable is set to what it is by default", _ENVS),
    Id("ENV-15", ERROR,   "The variable's value is none of its choices", _ENVS + " (env_with_choices)"),
    Id("ENV-16", ERROR,   "The variable's value is read as off", _ENVS),
    Id("ENV-17", WARNING, "The variable is set and not exported, so vLLM does not see it", "POSIX shell, 2.9.1 and export"),
    *(Id(*row) for row in JUDGED),
)
# fmt: on

BY_ID: dict[str, Id] = {row.id: row for row in IDS}
