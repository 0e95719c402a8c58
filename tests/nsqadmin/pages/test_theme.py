"""Dark or light by hand: at once, in the charts too, and from the first paint of the next page."""

from playwright.sync_api import Page, expect

from ..conftest import Installation

DARK, LIGHT = "rgb(16, 24, 31)", "rgb(245, 247, 249)"
_CURVES = """() => [...document.querySelectorAll('.chart path[stroke="#0b6fa4"]')]
    .map(one => getComputedStyle(one).stroke)"""
_COLOURS = {"dark": "rgb(90, 184, 232)", "light": "rgb(11, 111, 164)"}


def choose(page: Page, theme: str) -> None:
    if not page.get_by_label("Dark or light").is_visible():
        page.get_by_role("button", name="anonymous").click()
    page.get_by_label("Dark or light").get_by_text(theme.capitalize()).click()


def test_chosen_by_hand_and_remembered(page: Page, installation: Installation) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(installation.admin.url("/counter"))
    body = page.locator("body")
    expect(body).to_have_css("background-color", LIGHT)
    for theme, colour in (("dark", DARK), ("light", LIGHT)):
        choose(page, theme)
        expect(body).to_have_css("background-color", colour)
        page.wait_for_function(f"wanted => ({_CURVES})().includes(wanted)", arg=_COLOURS[theme])
        page.wait_for_function(f"document.cookie.includes('penstock_theme={theme}')")
    choose(page, "dark")
    page.wait_for_function("document.cookie.includes('penstock_theme=dark')")
    page.goto(installation.admin.url("/topics"))
    expect(body).to_have_css("background-color", DARK)
    choose(page, "auto")
    expect(body).to_have_css("background-color", LIGHT)


def test_a_forged_cookie_is_ignored(installation: Installation) -> None:
    headers = {"Cookie": "penstock_theme=</style><script>alert(1)</script>"}
    _, body, _ = installation.admin.request("GET", "/login", headers=headers)
    assert b"alert(1)" not in body
