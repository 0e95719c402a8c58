"""Links between the nodes of a cluster, over sockets.

Read `greeting` for how two nodes make sure of each other, `links` for which connections make a
link, and all of them together: what the broker sends through, and learns of.
"""
