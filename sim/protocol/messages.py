"""What goes over a link in the model, beside the effects that are frames themselves."""

from typing import NamedTuple

from penstock.log.epochs import BatchName
from sim.protocol.modellog import Batch


class LogAppend(NamedTuple):
    """Batches that follow `previous`; without any it only reports the committed end."""

    session: int
    epoch: int
    previous: BatchName
    start: int
    batches: tuple[Batch, ...]
    committed: int
