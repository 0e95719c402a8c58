"""Which errors leave the connection open; their texts are heard by `conformance/tcp.toml`."""

from penstock.wire.errors import Fault


def test_which_errors_do_not_end_the_connection() -> None:
    mild = {fault for fault in Fault if not fault.fatal}
    settling = {Fault.FIN_FAILED, Fault.REQ_FAILED, Fault.TOUCH_FAILED}
    assert mild == settling | {Fault.EXT_NOT_SUPPORT, Fault.NOT_WRITABLE}
