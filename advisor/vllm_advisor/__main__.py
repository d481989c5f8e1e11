"""`python -m vllm_advisor`: the `advisor` command."""

from vllm_advisor.cli.app import main


if __name__ == "__main__":
    main()
