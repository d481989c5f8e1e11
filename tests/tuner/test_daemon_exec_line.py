"""ExecStart= of a systemd unit as systemd reads it, and what is written for it to read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_tuner.daemon.units import exec_line
from vllm_tuner.daemon.units.exec_line import ExecLine


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/opt/vllm serve m --port 9", ["/opt/vllm", "serve", "m", "--port", "9"]),
        ("""a 'b c' "d 'e'" f"g h"i""", ["a", "b c", "d 'e'", "fg hi"]),
        (r"""a \x41\101\u0041 'it\'s' "\"q\"" b\sc d\\e""", ["a", "AAA", "it's", '"q"', "b c", r"d\e"]),
        (r"a \. '\d+'", ["a", r"\.", r"\d+"]),
        ("a '' b", ["a", "", "b"]),
        ("a 100%% $$5 x$y", ["a", "100%", "$5", "x$y"]),
    ],
)
def test_words(text, words):
    """Both kinds of quotes, C's escapes in and outside of them, and what is no escape as it stands."""
    assert ExecLine(tuple(words)) == exec_line.parse(text)


def test_what_systemd_replaces_stays():
    """Variables and specifiers of the operator are no literals: they come back as they were written."""
    line = exec_line.parse("%h/bin/vllm serve ${MODEL} $EXTRA --name=${NAME} 5%% %i")
    assert ("%h/bin/vllm", "serve", "${MODEL}", "$EXTRA", "--name=${NAME}", "5%", "%i") == line.words
    assert '"%h/bin/vllm" serve "${MODEL}" "$EXTRA" "${NAME}" "5%%" "%i" "$$5"' == line.written(
        (*line.words[:4], "${NAME}", *line.words[5:], "$5")
    )
    assert '/v "$${MODEL}"' == ExecLine(()).written(("/v", "${MODEL}"))


@pytest.mark.parametrize(
    ("text", "words", "prefix"),
    [
        ("-/v serve", ("/v", "serve"), "-"),
        ("@/v name serve", ("/v", "serve"), ""),
        ("-+/v serve", ("/v", "serve"), "-+"),
        ("!!/v serve", ("/v", "serve"), "!!"),
        (":/v ${A} %%", ("/v", "${A}", "%"), ""),
    ],
)
def test_marks_in_front(text, words, prefix):
    """A second name is no argument; what changes privileges or success is kept; without variables `$` is a dollar."""
    found = exec_line.parse(text)
    assert (words, prefix) == (found.words, found.prefix)
    assert f"{prefix}/v {exec_line.quoted(words[1])}" == found.written(words[:2])


def test_the_command_that_counts():
    """The last of [Service], after joins and comments in between; an empty one takes all back; other sections not."""
    text = (
        "[Unit]\nExecStart=no\n[Service]\n ExecStart = /v serve \\\n# a comment\n  ; another\n  m \\\n  --x 'a b'\n"
        "ExecStartPre=/bin/true\n[Install]\nExecStart=/no\n"
    )
    assert ("/v", "serve", "m", "--x", "a b") == exec_line.last(text).words
    assert ("/w",) == exec_line.last(text + "[Service]\nExecStart=\nExecStart=/w\n").words
    assert ("/w", "\\") == exec_line.last("[Service]\nExecStart=/w \\\\\nExecStartPre=/x\n").words
    assert exec_line.last(text + "[Service]\nExecStart=\n") is None
    with pytest.raises(ValueError, match="quotation"):
        exec_line.last("[Service]\nExecStart=/v 'm\n")


_WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


@given(st.lists(_WORD, min_size=1, max_size=5))
def test_literal_words_come_back(words):
    """Whatever a plan's words hold, systemd's rules read them back."""
    argv = ("/v", *words)
    assert ExecLine(argv) == exec_line.last(f"[Service]\nExecStart={ExecLine(()).written(argv)}\n")


@given(_WORD)
def test_values_of_variables_come_back(value):
    """In an Environment= only quotes, escapes and specifiers mean something."""
    (word,) = exec_line.split(exec_line.assignment("A", value))
    assert f"A={value}" == word.replace("%%", "%")
