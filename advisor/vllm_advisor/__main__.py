"""The console script, and `python -m vllm_advisor`: the `advisor` command."""

import gc


# A short process that frees nothing; collections cost a tenth of its imports. The wizard turns them on again.
gc.disable()

from vllm_advisor.cli.app import main  # noqa: E402


if __name__ == "__main__":
    main()
