"""The last word on a tuned table: the same server with it and without it, in turns under a real load.

Tiles that won kernel by kernel are kept only if the server wins with them, and only if its log says that it read them:
a file that nobody opened has won nothing, whatever the clock says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.errors import BadInput
from vllm_tuner.contest import contest, fit_together
from vllm_tuner.trial import Candidate
from vllm_tuner.vllm_configs import serverlog
from vllm_tuner.vllm_configs.tune import keep_if_server_wins, with_files


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vllm_advisor.plan import Plan
    from vllm_tuner.gate import Decision
    from vllm_tuner.serving import Bench
    from vllm_tuner.vllm_configs.names import ExpertsFile
    from vllm_tuner.vllm_configs.serverlog import LogVerdict
    from vllm_tuner.vllm_configs.tune import Kept


class Played(NamedTuple):
    """What the turns came to, what the servers' logs say of each file, and what became of the files."""

    decision: Decision
    verdicts: tuple[LogVerdict, ...]
    kept: Kept


def play(
    bench: Bench,
    plan: Plan,
    folder: Path,
    files: Sequence[ExpertsFile],
    *,
    end: float,
    told: Callable[[Decision], None],
) -> Played:
    """Serve the plan with the folder against the plan as it is; the loser's files are taken away.

    Raises BadInput where none of the files is there, and what a contest raises; then nothing is taken away.
    """
    there = [file for file in files if (folder / file.name).is_file()]
    if not there:
        raise BadInput(f"{folder} has no file that this plan would look for", "`tuner files MODEL` lists their names")
    ours, theirs = Candidate(with_files(plan, folder)), Candidate(plan)
    together = fit_together(bench.space, ours, theirs)
    found = contest(bench, ours, theirs, end, together=together, told=told)
    names = [file.name for file in there]
    verdicts = serverlog.judge(_read(bench.folder), names, folder)
    return Played(found.decision, verdicts, keep_if_server_wins(found.decision, folder, there, verdicts))


def _read(runs: Path) -> serverlog.Reading:
    """All logs of the side with the files, as one: a name is said once a server, when its first batch arrives."""
    logs = [serverlog.read(path) for path in sorted(runs.glob("contest-0*/**/*.log"))]
    return serverlog.Reading(*(tuple(dict.fromkeys(item for log in logs for item in log[i])) for i in range(3)))
