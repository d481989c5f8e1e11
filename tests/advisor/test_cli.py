"""The command line: what a person types, what comes back on which stream, and with which exit code."""

import json
import subprocess
import sys

import pytest


def advisor(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "vllm_advisor", *args], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert code == done.returncode, done.stderr
    return done


GPT_OSS = ("recommend", "openai/gpt-oss-120b", "--gpu", "8xH100")
M3 = ("recommend", "MiniMaxAI/MiniMax-M3", "--vllm", "0.33.0")


def test_recommend_prints_the_command_then_the_why():
    """The answer starts with a command to paste, and goes on with plans, memory, speed and reasons."""
    out = advisor(*GPT_OSS).stdout

    places = [
        out.index(mark) for mark in ("vllm serve openai/gpt-oss-120b", "Plans, best first", "Memory of plan 1", "Why")
    ]
    assert sorted(places) == places


def test_recommend_json_says_the_same_as_the_text():
    """The JSON's best command is the text's command, word by word."""
    argv = json.loads(advisor(*GPT_OSS, "--json").stdout)["plans"][0]["command"]["argv"]
    text = " ".join(advisor(*GPT_OSS, "--format", "command").stdout.replace("\\\n", " ").split())

    assert " ".join(argv) in text


def test_the_answer_is_the_same_twice():
    """Two processes with different hash seeds print the same bytes."""
    outs = [
        subprocess.run(
            [sys.executable, "-m", "vllm_advisor", *GPT_OSS, "--json", "--why-not"],
            capture_output=True, check=True, env={"PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip

    assert outs[0] == outs[1]


def test_why_not_gives_every_rejected_plan_a_reason():
    """No plan is dropped silently."""
    answer = json.loads(advisor(*M3, "--gpu", "8xH100", "--json", "--why-not").stdout)

    assert answer["rejected_count"] == len(answer["rejected"]) > 0
    assert all(any(r["level"] == "veto" for r in plan["reasons"]) for plan in answer["rejected"])


def test_minimax_m3_in_fp8_does_not_fit_four_80_gb_cards():
    """The seed text's own example, fp8 weights on four cards, is answered with no and the numbers."""
    done = advisor(*M3, "--gpu", "4xH100", "--quantization", "fp8_per_tensor", "--this-checkpoint", code=1)

    assert "No plan fits" in done.stdout
    assert "GiB" in done.stdout


def test_nothing_fits_is_an_answer_in_json():
    """Exit 1, the nearest misses, and what would make each fit."""
    answer = json.loads(advisor(*M3, "--gpu", "L4", "--json", code=1).stdout)

    assert not answer["feasible"]
    assert answer["nearest_misses"]


def test_a_model_that_we_do_not_understand_is_neither_yes_nor_no(tmp_path):
    """An unknown architecture: the third answer, with what is missing, and no guess shown as fact."""
    config = {"architectures": ["NovelForCausalLM"], "model_type": "novel", "hidden_size": 1024, "vocab_size": 1000,
              "num_hidden_layers": 4, "num_attention_heads": 8, "max_position_embeddings": 4096}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    asked = ("recommend", str(tmp_path), "--gpu", "H100")

    assert "cannot be told" in advisor(*asked, code=1).stdout
    assert "cannot tell" == json.loads(advisor(*asked, "--json", code=1).stdout)["verdict"]


def test_a_format_without_a_plan_writes_nothing_to_stdout():
    """`--format compose > file` must not fill the file with an explanation."""
    done = advisor(*M3, "--gpu", "L4", "--format", "compose", code=1)

    assert "" == done.stdout
    assert "no plan fits" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("recommend", "openai/gpt-oss-120"), 2, "gpt-oss-120b"),
        (("recommend", "openai/gpt-oss-120b", "--gpu", "8xH1000"), 2, "H100"),
        (("recommend", "openai/gpt-oss-120b", "--gpu", "H100", "--vllm", "0.99.0"), 2, "0.33.0"),
        (("recommend", "openai/gpt-oss-120b", "--gpu", "H100", "--workload", "chess"), 2, "chat"),
        (("recommend", "openai/gpt-oss-120b", "--gpu", "H100", "--context", "9000000"), 2, "131,072"),
        (("recommend", "openai/gpt-oss-120b", "--gpu", "H100", "--context", "100"), 2, "shorter"),
        (("recommend", "openai/gpt-oss-120b", "--gpu", "H100", "--format", "xml"), 2, "compose"),
        (("recommend", "openai/gpt-oss-120b", "--node", "nowhere.json"), 2, "nowhere.json"),
        (("recommend", "openai/gpt-oss-120b", "--gpu", "Gaudi3"), 2, "not supported"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line_and_a_hint(args, code, says):
    """Each mistake names what is wrong and what to do, on stderr, and nothing lands on stdout."""
    done = advisor(*args, "--offline", code=code)

    assert "" == done.stdout
    assert says in done.stderr
    assert ["error:", "hint:"] == [
        line.split(" ")[0] for line in done.stderr.splitlines() if line.startswith(("error", "hint"))
    ]


def test_help_teaches_by_example():
    """Every subcommand has help with what it is for, and the main one shows commands to copy."""
    assert "advisor recommend openai/gpt-oss-120b" in advisor("recommend", "--help").stdout.replace("\n  ", " ")


def test_version_is_printed():
    """`--version` prints name and version and stops."""
    assert advisor("--version").stdout.startswith("vllm-advisor 0.")
