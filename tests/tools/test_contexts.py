"""Contexts as text and as a file: what is refused, and that nothing is lost or shown."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from penstock.tools import contexts
from penstock.tools.contexts import Context, Contexts, ContextTrouble

FULL = Context(
    description='what "earns" the money \\ übrigens',
    nsqd_tcp_address=("a:4150",),
    lookupd_http_address=("l1:4161", "https://l2:4162"),
    admin="https://admin.example/base",
    tls=True,
    tls_root_ca_file="/etc/ca.pem",
    tls_cert="/etc/cert.pem",
    tls_key="/etc/key.pem",
    auth_secret_env="SECRET",
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "penstock" / "contexts.toml"


def test_out_and_in_is_the_same() -> None:
    found = Contexts(context={"prod.eu": FULL, "t": Context(nsqd_http_address=("/run/nsqd",))})
    found.select("prod.eu")
    found.select("t")
    again = contexts.read(contexts.to_text(found))
    assert again == found
    assert (again.selected, again.previous) == ("t", "prod.eu")


def test_selecting_and_going_back() -> None:
    found = Contexts(context={"a": FULL, "b": FULL})
    with pytest.raises(ContextTrouble, match="no context was selected before"):
        found.go_back()
    found.select("a")
    found.select("b")
    found.select("b")
    assert found.go_back() == "a"
    assert found.go_back() == "b"
    found.remove("a")
    assert (found.selected, found.previous) == ("b", "")
    found.select("")
    assert (found.selected, found.previous) == ("", "b")
    with pytest.raises(ContextTrouble, match="no context 'a'; there are b"):
        found.select("a")


@pytest.mark.parametrize(
    ("name", "context", "said"),
    [
        ("-x", FULL, "is no name of a context"),
        ("a b", FULL, "is no name of a context"),
        ("x" * 65, FULL, "is no name of a context"),
        ("x", Context(), "needs an address"),
        ("x", Context(nsqd_http_address=("a:1",), lookupd_http_address=("b:1",)), "not both"),
        ("x", Context(admin="a:1"), "admin is a URL"),
        ("x", Context(admin="http://a", tls_cert="c"), "go together"),
        ("x", Context(admin="http://a", auth_secret_env="a", auth_secret_file="b"), "not both"),
        ("x", Context(nsqd_http_address=("a\n:1",)), "without control characters"),
    ],
)
def test_what_is_refused(name: str, context: Context, said: str) -> None:
    with pytest.raises(ContextTrouble, match=said):
        Contexts().put(name, context)


@pytest.mark.parametrize("field", ["admin", "nsqd_http_address", "lookupd_http_address"])
def test_a_password_is_refused_and_not_repeated(field: str) -> None:
    url = "https://ann:hidden@h:1"
    context = Context(**{field: url if field == "admin" else (url,)})  # type: ignore[arg-type]
    with pytest.raises(ContextTrouble) as caught:
        Contexts().put("x", context)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "not = [toml",
        "version = 2",
        "surprise = 1",
        '[context.a]\nnsqd_http_address = "a:1"',
        '[context.a]\nnsqd_http_address = ["a:1"]\npassword = "x"',
        '[context.a]\nadmin = "http://a"\n[context."-"]\nadmin = "http://a"',
        'selected = "gone"',
        "a = " + "[" * 5000,
    ],
)
def test_a_damaged_file_is_named(text: str, place: Path) -> None:
    place.parent.mkdir(parents=True)
    place.write_text(text)
    with pytest.raises(ContextTrouble, match="is corrupt: ") as caught:
        contexts.load()
    assert str(caught.value).startswith(str(place))
    with pytest.raises(ContextTrouble, match="is corrupt"), contexts.changed():
        pass
    assert place.read_text() == text


def test_the_file_is_private_and_whole(place: Path) -> None:
    assert contexts.load() == Contexts()
    with contexts.changed() as found:
        found.put("a", FULL)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    before = place.read_bytes()
    with pytest.raises(ContextTrouble), contexts.changed() as found:
        found.context["b"] = found.get("gone")
    assert place.read_bytes() == before
    assert os.listdir(place.parent) == ["contexts.toml"]


def test_a_link_stays_a_link(place: Path, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles" / "contexts.toml"
    kept.parent.mkdir()
    place.parent.mkdir(parents=True)
    place.symlink_to(kept)
    with contexts.changed() as found:
        found.put("a", FULL)
    assert place.is_symlink()
    assert "a" in contexts.read(kept.read_text()).context


def test_two_changes_at_the_same_time_are_both_there() -> None:
    def put(name: str) -> None:
        with contexts.changed() as found:
            found.put(name, FULL)

    names = [f"c{number}" for number in range(16)]
    threads = [threading.Thread(target=put, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(contexts.load().context) == sorted(names)


def test_a_relative_directory_of_configurations_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert contexts.path() == tmp_path / ".config" / "penstock" / "contexts.toml"
