"""A request for another daemon: the first of several that can be reached.

One that cannot be reached has not heard of it, so the next is asked. Where one may have heard it
and has not answered, the outcome is not known, and the answer says so: a change that was made must
not be made again. Status and body are the daemon's.
"""

from collections.abc import Iterable

from penstock.errors import FetchFailed
from penstock.net.api import NSQ_HEADER, HttpError, error_response
from penstock.net.exchange import Request, Response
from penstock.net.fetch import Fetcher
from penstock.net.outgoing import Headers

REPEATED = "X-Penstock-Repeated"


async def pass_on(
    fetcher: Fetcher,
    request: Request,
    target: str,
    addresses: Iterable[str],
    credentials: str,
    headers: Headers | None = None,
    outcome: str = "changed",
) -> Response:
    """`target`: path and query. `credentials`: for the header Authorization. `outcome`: the member
    of an error that tells whether it was done, `stored` for a publish."""
    reasons = []
    for address in addresses:
        url = f"http://{address}{target}"
        try:
            found = await fetcher.request(request.method, url, request.body, headers, credentials)
        except FetchFailed as failed:
            if failed.sent:
                unknown = {outcome: "unknown"}
                return error_response(HttpError(503, f"FAILED {failed}", details=unknown))
            reasons.append(f"{address}: {failed.reason}")
            continue
        kind = found.headers.get("content-type", "") if found.body else ""
        repeated = found.headers.get(REPEATED.lower())
        more = ((REPEATED, repeated),) if repeated else ()
        return Response(found.status, found.body, kind, (*NSQ_HEADER, *more))
    why = "; ".join(reasons) or "none is alive"
    return error_response(HttpError(503, f"FAILED no nsqd with a replica can be reached: {why}"))
