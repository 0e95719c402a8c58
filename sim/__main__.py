import sys

from sim.main import sim_main

sys.exit(sim_main(sys.argv[1:]))
