"""The timed world: the offices of some nodes on a clock, and a network and coordinator that fail.

What `sim.protocol` leaves to the dice is decided here by time: leases, timeouts, who waits
for whom. Read `world` for what happens, and `scenarios` for what must follow.
"""
