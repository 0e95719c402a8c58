"""The bytes of a request, and what a redirect makes of it."""

import pytest

from cases import each
from penstock.net.outgoing import HttpFailed, Outgoing


def lines(outgoing: Outgoing) -> list[str]:
    return outgoing.encode(keeps_connection=True).decode().partition("\r\n\r\n")[0].split("\r\n")


def outgoing(url: str, method: str = "GET", body: bytes = b"", **headers: str) -> Outgoing:
    return Outgoing(method, url, body, {k.replace("_", "-"): v for k, v in headers.items()})


@each(
    ("url", "target", "host"),
    [
        ("http://h:80/x", "/x", "h"),
        ("https://h:443/x", "/x", "h"),
        ("http://h?a=1", "/?a=1", "h"),
        ("http://h/a/../b//c;d?", "/a/../b//c;d?", "h"),
        ("http://h/%7e%2F?q=%zz+ä#part", "/%7e%2F?q=%zz+ä", "h"),
        ("HTTP://Host.Example/X", "/X", "host.example"),
        ("http://bücher.example/", "/", "xn--bcher-kva.example"),
        ("http://[::1]:4151/x", "/x", "[::1]:4151"),
        ("http://[fe80::1%eth0]/x", "/x", "[fe80::1]"),
        ("http://u:p@h/a@b", "/a@b", "h"),
    ],
)
def test_the_url_is_sent_as_it_is_given(url: str, target: str, host: str) -> None:
    first, *fields = lines(outgoing(url))
    assert first == f"GET {target} HTTP/1.1"
    assert f"Host: {host}" in fields


@each(
    "url",
    [
        "", "h:4151", "ftp://h/", "http://", "http:///x", "http://:80/", "http://h:x/",
        "http://h:70000/", "http://h:0/", "http://[::1/", "http://h/a b", "http://h/a\r\nX: y",
        "http://h\t/", " http://h/", "http://h/\x7f", "http://s3cret\u2100/",
    ],
)  # fmt: skip
def test_invalid_urls(url: str) -> None:
    with pytest.raises(HttpFailed, match=r"^(a malformed URL|not an http or https URL)$"):
        outgoing(url)


def test_headers_of_the_caller_come_before_our_own() -> None:
    found = lines(outgoing("http://h/", accept="text/plain", HOST="other", User_Agent="x/1"))
    names = [line.partition(":")[0].lower() for line in found[1:]]
    assert sorted(names) == sorted(set(names))
    assert {"accept: text/plain", "HOST: other", "User-Agent: x/1"} <= set(found)
    assert "Accept-Encoding: identity" in found


def test_the_length_is_that_of_the_body() -> None:
    post = outgoing("http://h/", "POST", b"12345", Content_Length="1", Transfer_Encoding="chunked")
    assert "Content-Length: 5" in lines(post)
    assert "hunked" not in "".join(lines(post))
    assert post.encode(True).endswith(b"\r\n\r\n12345")
    assert "Content-Length: 0" in lines(outgoing("http://h/", "POST"))
    get = outgoing("http://h/", Content_Length="1")
    assert not any("Content-Length" in line for line in lines(get))


@each("value", ["a\r\nX: y", "a\ny", "\0", "\udc80"])
def test_a_header_has_one_line(value: str) -> None:
    with pytest.raises(HttpFailed, match=r"^a header (with a line break|that is no text)$"):
        outgoing("http://h/", X=value).encode(True)


@each(
    ("url", "given", "sent"),
    [
        ("http://user:p%40ss@h/", {}, "Basic dXNlcjpwQHNz"),
        ("http://user@h/", {}, "Basic dXNlcjo="),
        ("http://u:ü@h/", {}, "Basic dTrDvA=="),
        ("http://user:pass@h/", {"authorization": "Bearer x"}, "Bearer x"),
    ],
)
def test_a_password_in_the_url(url: str, given: dict[str, str], sent: str) -> None:
    found = [line for line in lines(outgoing(url, **given)) if "uthorization" in line]
    assert [line.partition(": ")[2] for line in found] == [sent]


# --- redirects ---


@each(
    ("method", "status", "then"),
    [
        ("POST", 301, "GET"), ("POST", 302, "GET"), ("POST", 303, "GET"), ("PUT", 303, "GET"),
        ("POST", 307, "POST"), ("POST", 308, "POST"), ("PUT", 301, "PUT"), ("PUT", 302, "PUT"),
        ("HEAD", 303, "HEAD"), ("GET", 302, "GET"),
    ],
)  # fmt: skip
def test_the_method_after_a_redirect(method: str, status: int, then: str) -> None:
    request = outgoing("http://h/", method, b"body", Content_Type="text/plain")
    request.redirect(status, "/there")
    data = request.encode(True)
    assert data.startswith(f"{then} /there HTTP/1.1\r\n".encode())
    kept = then == method
    assert (data.endswith(b"body"), b"text/plain" in data, b"gth: 4" in data) == (kept,) * 3


@each(
    ("location", "target", "host"),
    [
        ("x", "/a/x", "h:1"),
        ("?q=1", "/a/b?q=1", "h:1"),
        ("//g/y", "/y", "g"),
        ("https://g:2/y?z=%20#f", "/y?z=%20", "g:2"),
        ("/a b/ü\udcff", "/a%20b/%C3%BC%FF", "h:1"),
        ("/\r\nX: y", "/%0D%0AX:%20y", "h:1"),
    ],
)
def test_where_a_redirect_goes(location: str, target: str, host: str) -> None:
    request = outgoing("http://h:1/a/b?c=d")
    request.redirect(302, location)
    first, *fields = lines(request)
    assert first == f"GET {target} HTTP/1.1"
    assert f"Host: {host}" in fields


@each("location", ["ftp://h/", "https://", "http://[::1/", "mailto:s3cret"])
def test_a_redirect_to_nowhere(location: str) -> None:
    with pytest.raises(HttpFailed, match=r"(malformed URL|not an http or https URL)$"):
        outgoing("http://h:1/").redirect(302, location)


@each(
    ("location", "kept"),
    [
        ("/x", True),
        ("http://h:1/x", True),
        ("http://h:2/x", False),
        ("https://h:1/x", False),
        ("http://g:1/x", False),
    ],
)
def test_credentials_stay_with_their_origin(location: str, kept: bool) -> None:
    by_url = outgoing("http://user:secret@h:1/")
    by_header = outgoing("http://h:1/", authorization="Bearer secret", cookie="a=secret", host="v")
    for request, names in ((by_url, {"authorization"}), (by_header, {"authorization", "cookie"})):
        request.redirect(307, location)
        found = {line.partition(":")[0].lower() for line in lines(request)}
        assert names & found == (names if kept else set())
        assert ("host: v" in lines(request)) == (kept and request is by_header)
