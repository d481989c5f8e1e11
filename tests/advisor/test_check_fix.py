"""Changes to a command: applied right to left, variables with them, and the result read back as the same words."""

import shlex

from vllm_advisor.check import fix, read
from vllm_advisor.check.finding import Change


COMMAND = read.command_line(["A=1", "B=2", "vllm", "serve", "m", "--x", "1", "--y", "--z", "3"])


def test_words_are_replaced_removed_and_added():
    """By their index in the command as it was."""
    changes = [Change(3, 5), Change(5, 6, ("--no-y",)), None, Change(8, 8, ("--w", "9"))]

    assert ("vllm", "serve", "m", "--no-y", "--z", "3", "--w", "9") == fix.apply(COMMAND, changes).argv


def test_of_two_changes_of_a_word_the_first_wins():
    """The others are for the next round."""
    assert "--a" in fix.apply(COMMAND, [Change(3, 5, ("--a",)), Change(4, 5, ("2",))]).argv


def test_the_same_insertion_is_made_once():
    """Two findings that ask for the same option."""
    add = Change(8, 8, ("--w",))

    assert 1 == fix.apply(COMMAND, [add, add]).argv.count("--w")


def test_variables_are_set_and_taken_away():
    """Order stays, a new one comes last."""
    changed = fix.apply(COMMAND, [Change(env=(("A", None), ("C", "3"))), Change(env=(("B", "4"),))])

    assert ((("B", "4"), ("C", "3")), COMMAND.argv) == (changed.env, changed.argv)


def test_the_text_is_one_option_a_line_and_reads_back():
    """Quotes as a shell needs them, exports first."""
    odd = COMMAND._replace(argv=("vllm", "serve", "m", "--json", '{"a": "it\'s"}', "-n", "-1"), env=(("A", "x y"),))
    exports, command = fix.shell(odd).split("\n", 1)

    assert ("export A='x y'", list(odd.argv)) == (exports, shlex.split(command.replace("\\\n", " ")))
    assert 3 == len(command.rstrip().split("\n"))


def test_a_shell_variable_stays_one():
    """`$MODEL` is quoted so that the shell still expands it."""
    assert 'vllm serve "$MODEL"\n' == fix.shell(read.command_line(["vllm", "serve", "$MODEL"]))
