"""`spark-submit [--master ...] penstock_pipeline.py NAME ...` runs a pipeline.

`python -m penstock.pipelines --entry` prints where this file is.
"""

import sys

from penstock.pipelines.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
