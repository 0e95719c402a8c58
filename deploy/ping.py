"""Is the daemon of this container well? `ping.py PORT...`: the first port at which somebody listens
is asked for /ping, and has to answer 200 in time."""

import http.client
import sys

ANSWER_S = 2.0


def well(port: int) -> bool | None:
    """None: nobody listens there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    try:
        connection.connect()
    except ConnectionRefusedError:
        return None
    try:
        connection.request("GET", "/ping")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main(ports: list[str]) -> int:
    for port in ports:
        found = well(int(port))
        if found is not None:
            return 0 if found else 1
    print("nobody listens at", *ports)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
