"""`python -m penstock.pipelines NAME ...`: run a pipeline; `--entry`: the script for spark-submit,
which does the same (`penstock.pipelines.entry.penstock_pipeline`)."""

import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.pipelines.runner import DONE, PIPELINES, USAGE, run_by_name

ENTRY = Path(__file__).parent / "entry" / "penstock_pipeline.py"
_USAGE = f"usage: NAME [settings], or --entry; NAME is one of {', '.join(PIPELINES)}\n"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--entry"]:
        sys.stdout.write(f"{ENTRY}\n")
        return DONE
    if not arguments or arguments[0] in ("-h", "--help"):
        (sys.stdout if arguments else sys.stderr).write(_USAGE)
        return DONE if arguments else USAGE
    return run_by_name(arguments[0], arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
