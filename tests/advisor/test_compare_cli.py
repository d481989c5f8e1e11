"""`advisor compare` as it is typed: the table, the bars, JSON, exit codes, and what cannot be asked."""

import json
import re

import pytest
from typer.testing import CliRunner

from vllm_advisor.cli.compare import app
from vllm_advisor.errors import BadInput, UsageError


QWEN = ("Qwen/Qwen3-8B", "--gpu", "H100")


def run(*args):
    return CliRunner().invoke(app, list(args), catch_exceptions=False)


def answered(*args, code=0):
    done = run(*args, "--json")
    assert code == done.exit_code, done.output
    return json.loads(done.stdout)


def cells(text, name):
    """A line of the table, cell by cell."""
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    return re.split(r"  +", line.strip())[1:]


def test_the_table_has_a_column_a_format():
    """Figures below each other with multiples of BF16, and what the kernels multiply in."""
    done = run(*QWEN)

    assert 0 == done.exit_code
    assert ["BF16", "FP8", "FP8 + FP8 KV", "MXFP4"] == re.split(r"  +", done.stdout.splitlines()[4].strip())
    assert ["15.3", "8.8 (0.58 ×)", "8.8 (0.58 ×)", "5.8 (0.38 ×)"] == cells(done.stdout, "weights")
    assert ["147,456", "147,456 (1.00 ×)", "73,728 (0.50 ×)", "147,456 (1.00 ×)"] == cells(done.stdout, "KV bytes")
    assert ["16 bits", "8 bits, native", "8 bits, native", "16 bits, weights only"] == cells(done.stdout, "arithmetic")
    assert "never as a smaller total" in " ".join(done.stdout.split())


def test_bars_are_on_the_scale_of_the_device():
    """48 cells for 79.2 GiB: BF16's 15.3 GiB of weights take nine, MXFP4's 5.8 take three or four."""
    text = run(*QWEN).stdout
    bars = re.findall(r"^  (\S.*?) +([█▓░·>]{48})  ", text, re.MULTILINE)

    assert ["BF16", "FP8", "FP8 + FP8 KV", "MXFP4"] == [name for name, _ in bars]
    assert (9, 3) == (bars[0][1].count("█"), bars[3][1].count("█"))
    assert 1 == len({bar.count("·") for _, bar in bars})


def test_bars_are_ascii_where_the_terminal_is(monkeypatch):
    """No character beyond ASCII in a bar."""
    monkeypatch.setattr("vllm_advisor.cli.output.utf8", lambda: False)
    bars = [line for line in run(*QWEN).stdout.splitlines() if re.search(r"[Wok.]{40}", line)]

    assert 4 == len(bars)
    assert all(line.isascii() for line in bars)


def test_more_than_the_device_ends_in_an_arrow():
    """MiniMax-M3 in BF16 on eight H100 wants 102.7 of 79.2 GiB a card."""
    text = run("MiniMaxAI/MiniMax-M3", "--gpu", "8xH100").stdout

    assert re.search(r"BF16 +█{47}>  102\.7 GiB \+ 0\.0 GiB KV", text)
    assert "does not fit, needs TP16" in cells(text, "verdict")
    assert "MEM-01: weights need 102.7 GiB" in text


def test_json_has_ratios_and_the_command():
    """Bytes not rounded; a ratio of the base itself is null; the command is what would be launched."""
    found = answered(*QWEN, "--context", "8192")
    rows = {row["format"]: row for row in found["formats"]}

    assert (1, "0.33.0", "TP1", 8192, "bf16") == tuple(
        found[name] for name in ("schema", "vllm", "layout", "request_tokens", "ratios_to")
    )
    assert [None] * 6 == list(rows["bf16"]["ratios"].values())
    assert (0.5764, 0.5) == (
        rows["fp8+fp8"]["ratios"]["weights"],
        rows["fp8+fp8"]["ratios"]["kv_bytes_per_token"],
    )
    assert ["vllm", "serve", "Qwen/Qwen3-8B-FP8"] == rows["fp8+fp8"]["command"]["argv"][:3]
    assert ("--kv-cache-dtype", "fp8") == tuple(rows["fp8+fp8"]["command"]["argv"][3:5])
    assert rows["fp8"]["estimate"]["output_tok_s"]["low"] < rows["fp8"]["estimate"]["output_tok_s"]["mid"]


def test_what_does_not_run_says_why():
    """The rule and its source, and nothing of memory."""
    row = answered(*QWEN, "--vllm", "0.24.0")["formats"][3]

    assert ("mxfp4", "not supported", None) == (row["format"], row["verdict"], row["memory"])
    assert ["QNT-09"] == [reason["rule"] for reason in row["reasons"]]


def test_formats_can_be_named():
    """In the order in which they were named."""
    found = answered(*QWEN, "--quantizations", "int4,bf16")

    assert [("int4", "Qwen/Qwen3-8B-AWQ"), ("bf16", "Qwen/Qwen3-8B")] == [
        (row["format"], row["plan"]["checkpoint"]) for row in found["formats"]
    ]
    assert "bf16" == found["ratios_to"]


def test_this_checkpoint_leaves_siblings_out():
    """FP8 is then converted while loading."""
    row = answered(*QWEN, "--quantizations", "fp8", "--this-checkpoint")["formats"][0]

    assert ("Qwen/Qwen3-8B", True) == (row["plan"]["checkpoint"], row["plan"]["quantization"].startswith("fp8_per_"))


def test_nothing_fits_is_an_answer():
    """Exit 1, every column with what it needs."""
    found = answered("MiniMaxAI/MiniMax-M3", "--gpu", "L4", "--quantizations", "bf16,fp8", code=1)

    assert [("does not fit", 64), ("does not fit", 32)] == [
        (row["verdict"], row["needs_tensor_parallel_size"]) for row in found["formats"]
    ]


def test_a_processor_is_compared_too():
    """MXFP4 does not run there; the KV cache is set and equal, and that is said."""
    done = run("HuggingFaceTB/SmolLM2-135M-Instruct", "--gpu", "cpu", "--vllm", "0.32.0", "--offline")

    assert 0 == done.exit_code
    assert "not supported" == cells(done.stdout, "verdict")[3]
    assert "equal in all columns" in done.stdout


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((*QWEN[:2], "H1000x"), BadInput),
        ((*QWEN, "--quantizations", "fp9"), UsageError),
        ((*QWEN, "--quantizations", "fp8", "--all"), UsageError),
        ((*QWEN, "--context", "10M"), UsageError),
    ],
)
def test_what_cannot_be_asked_is_one_line(args, error):
    """An unknown GPU, an unknown format, two answers to one question, a context beyond the model's."""
    with pytest.raises(error):
        run(*args)


def test_help_has_examples():
    """With the defaults said."""
    text = run("--help").stdout

    assert "advisor compare MiniMaxAI/MiniMax-M3 --gpu 8xB200 --all" in text
    assert "FP8 with an FP8 cache" in " ".join(text.split())
