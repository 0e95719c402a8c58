r"""The pipeline `audit`: was every message of a topic delivered, once, in order?

trace table --gather--> lives of messages --judge--> lost, stuck, doubled, out of order
traced publishes, archive, log --checked--> gaps, offsets and ids that stand twice
    findings: all of it together --> report --> terminal, JSON, page
"""
