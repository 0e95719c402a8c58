"""The generator is compiled; without a compiler there is no benchmark to test."""

import importlib.util

if importlib.util.find_spec("bench.load") is None:
    collect_ignore = ["test_load.py"]
