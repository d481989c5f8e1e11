"""Questions that need much of us, asked in a process of their own: the fingerprint, and a profile's command.

Models, surfaces and probes are loaded there and gone with it, so that the daemon stays small, and a driver that hangs
hangs nobody else. `python -m vllm_tuner.daemon.look QUESTION` prints one JSON document; `Look` asks without waiting.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from vllm_advisor.errors import AdvisorError, BadInput, StoreError
from vllm_advisor.hardware import Unknown
from vllm_advisor.plan import LaunchCommand
from vllm_tuner.daemon.drift_reason import Prior


if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_advisor.facts import Facts
    from vllm_advisor.profile import Fingerprint, Readings

_LONGEST_S, _COMMAND_S = 120.0, 60.0
_MODULE = "vllm_tuner.daemon.look"


class Look:
    """One question at a time, in a child; `answer` is there once it ended."""

    def __init__(self, environment: Mapping[str, str] | None = None, longest_s: float = _LONGEST_S) -> None:
        self._environment = dict(environment or {})
        self._longest_s = longest_s
        self._child: subprocess.Popen[bytes] | None = None
        self._file: IO[bytes] | None = None
        self._begun = 0.0

    @property
    def busy(self) -> bool:
        """Whether a question is being answered."""
        return self._child is not None

    def ask(self, *words: str) -> None:
        """Begin; an earlier question that was not answered is dropped."""
        self.stop()
        self._file = os.fdopen(os.memfd_create("answer"), "w+b")  # in memory: a full disk does not matter to a look
        self._begun = time.monotonic()
        self._child = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-P", "-m", _MODULE, *words],
            stdin=subprocess.DEVNULL, stdout=self._file, stderr=subprocess.DEVNULL,
            env=os.environ | self._environment, start_new_session=True,
        )  # fmt: skip

    def answer(self) -> dict[str, Any] | Unknown | None:
        """The document, Unknown where there is none to be had; None: not yet."""
        if self._child is None:
            return Unknown("nothing was asked")
        if self._child.poll() is None:
            if time.monotonic() - self._begun < self._longest_s:
                return None
            self.stop()
            return Unknown(f"no answer within {self._longest_s:g} s")
        text, code = self._text(), self._child.returncode
        self.stop()
        return _document(text, code)

    def _text(self) -> bytes:
        if self._file is None:
            return b""
        self._file.seek(0)
        return self._file.read(1 << 20)

    def wait(self, seconds: float) -> dict[str, Any] | Unknown:
        """The same, waited for."""
        end = time.monotonic() + seconds
        while (found := self.answer()) is None:
            if time.monotonic() > end:
                self.stop()
                return Unknown(f"no answer within {seconds:g} s")
            time.sleep(0.02)
        return found

    def stop(self) -> None:
        """Drop the question."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None
        if self._file is not None:
            self._file.close()
            self._file = None


def _document(text: bytes, code: int) -> dict[str, Any] | Unknown:
    try:
        found = json.loads(text)
    except ValueError:
        return Unknown(f"it ended with {code} and said nothing")
    if not isinstance(found, dict):
        return Unknown("its answer is no document")
    return Unknown(str(found["error"])) if "error" in found else found


class Found(NamedTuple):
    """What the machine, the software and the checkpoint are; `prior`: what this advisor promises over what runs."""

    fingerprint: Fingerprint
    vllm: str
    prior: Prior | None = None


def found(document: dict[str, Any]) -> Found:
    """The value of an answer to `fingerprint`. Raises BadInput."""
    from vllm_advisor.store import form

    made = form.fingerprint_from(document.get("strict"), document.get("loose"))
    return Found(made, str(document.get("vllm", "")), _prior(document.get("prior")))


def _prior(plain: object) -> Prior | None:
    if not (isinstance(plain, list) and len(plain) == 3 and isinstance(plain[1], int | float)):
        return None
    return Prior(str(plain[0]), float(plain[1]), str(plain[2]))


def command(document: dict[str, Any]) -> LaunchCommand:
    """The value of an answer to `command`. Raises BadInput."""
    argv, env = document.get("argv"), document.get("env")
    if not (isinstance(argv, list) and all(isinstance(word, str) for word in argv) and isinstance(env, dict)):
        raise BadInput("no command was answered")
    return LaunchCommand(tuple(argv), tuple(sorted((str(name), str(value)) for name, value in env.items())))


def plan_of(profile: str, vllm: str, environment: Mapping[str, str]) -> LaunchCommand:
    """The command of a stored profile on this machine. Raises StoreError."""
    asked = Look(environment)
    asked.ask("command", profile, vllm)
    answer = asked.wait(_COMMAND_S)
    if isinstance(answer, Unknown):
        raise StoreError(f"the command of profile {profile} cannot be had: {answer.why}", "advisor profiles list")
    return command(answer)


def main(words: list[str]) -> dict[str, Any]:
    """`fingerprint MODEL PROFILE`, `command PROFILE VLLM`, `prepare`. Raises AdvisorError.

    PROFILE "": none is known to run; VLLM "": the installed one.
    """
    question, subject, more = (*words, "", "", "")[:3]
    return {"fingerprint": _fingerprint, "command": _command, "prepare": _prepare}[question](subject, more)


def _prepare(_subject: str, _more: str) -> dict[str, Any]:
    """The store made, or brought up to date: whoever opens it afterwards needs no migrations in memory."""
    from vllm_advisor.store.profile_store import ProfileStore

    with ProfileStore.open():
        return {}


def _facts(model: str, vllm: str) -> Facts:
    from vllm_advisor import question
    from vllm_advisor.fingerprint import installed
    from vllm_advisor.workload import Workload

    here = installed().vllm
    version = vllm or (question.DEFAULT_VLLM if isinstance(here, Unknown) else here)
    spec = question.model(model, None, offline=True)
    return question.facts(question.node(None, None), spec, Workload(input_tokens=1, output_tokens=1), _surface(version))


def _surface(version: str) -> Any:
    from vllm_advisor import question

    return question.surface(version.partition("+")[0])


def _fingerprint(model: str, profile: str) -> dict[str, Any]:
    from vllm_advisor import fingerprint
    from vllm_advisor.store import form

    facts = _facts(model, "")
    made = fingerprint.of(facts, fingerprint.installed(), fingerprint.checkpoint(facts.model.name))
    strict, loose = (form.readings_to(part) for part in made)
    prior = _advice(profile, facts) if profile else None
    return {"strict": strict, "loose": loose, "vllm": facts.vllm.version, "prior": prior}


def _advice(profile: str, facts: Facts) -> Prior | None:
    """That there is none to be had is no reason to withhold the fingerprint."""
    from vllm_advisor import profiles
    from vllm_tuner.daemon.advice import advice

    try:
        return advice(profiles.find(profile), facts)
    except AdvisorError:
        return None


def _command(profile: str, vllm: str) -> dict[str, Any]:
    from vllm_advisor import profiles
    from vllm_advisor.vllm.command import build

    kept = profiles.find(profile)
    measured = kept.fingerprint.reading("vllm")
    facts = _facts(kept.plan.checkpoint, vllm or ("" if isinstance(measured, Unknown) else measured))
    load = kept.measurement.workload or facts.workload
    made = build(kept.plan, facts.model, facts.node, facts.vllm, load)
    words = [word for name, value in kept.flags for word in ((name,) if value is True else (name, str(value)))]
    return {"argv": [*made.argv, *words], "env": dict(made.env)}


def readings(plain: Readings) -> dict[str, str]:
    """For people: the readings that are known."""
    return {name: value for name, value in plain if not isinstance(value, Unknown)}


if __name__ == "__main__":
    try:
        answered = main(sys.argv[1:])
    except AdvisorError as error:
        answered = {"error": error.message}
    sys.stdout.write(json.dumps(answered))
