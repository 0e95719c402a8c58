import sys

from bench.main import bench_main

sys.exit(bench_main(sys.argv[1:]))
