from array import array

class LoadFailed(Exception): ...

class Load:
    def __init__(self, samples_max: int = 200_000, sample_every: int = 1) -> None: ...
    def publisher(
        self,
        fd: int,
        unit: bytes,
        messages: int,
        units: int,
        window: int,
        stamp_first: int = 0,
        stamp_stride: int = 0,
        nats: bool = False,
        count: int = 1,
    ) -> None: ...
    def consumer(
        self,
        fd: int,
        frame_bytes: int,
        opening: bytes = b"",
        ack_each: bool = False,
        nats: bool = False,
        ext_bytes: int = 0,
    ) -> None: ...
    def go(
        self,
        seconds_max: float,
        expected: int = 0,
        lag_max: int = 0,
        rate: int = 0,
        spin: bool = False,
        stall_seconds_max: float = 20.0,
    ) -> float: ...
    def progress(self) -> str: ...
    @property
    def acked(self) -> int: ...
    @property
    def received(self) -> int: ...
    def latencies(self) -> array[int]: ...
