"""Nobody comes in but the browser of whoever started the server, on a page of the server itself."""

from typing import Any

import pytest

from exhume.serving.guard import refusal

PORT, TOKEN = 5005, "t0ken-of-the-tests"
HOST, SELF = f"127.0.0.1:{PORT}", f"http://127.0.0.1:{PORT}"


def test_the_page_opens_with_the_token_and_allows_nothing_but_itself(ask: Any) -> None:
    found = ask("GET", "", headers={"Host": HOST, "Sec-Fetch-Site": "none"})
    assert found.status_code == 200
    assert "What does your model give away?" in found.text
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert not [name for name in found.headers if name.startswith("access-control")]
    assert "set-cookie" not in found.headers
    inline = [
        tag
        for tag in ("<style", "<script>", " style=", "javascript:", " onclick", "http:", "https:")
        if tag in found.text
    ]
    assert inline == []


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/page.js",
        "/wrong/",
        f"/{TOKEN}x/",
        f"/x/../{TOKEN}/",
        f"//{TOKEN}/",
        f"/{TOKEN.upper()}/",
        "/\0/",
        "/ü/",
    ],
)
def test_without_the_token_nothing_is_answered(ask: Any, path: str) -> None:
    """Asked of the guard itself: a client would tidy such paths up."""
    refused = refusal(ask.settings, "GET", path, {"host": HOST})
    assert refused is not None
    assert refused.status == 403
    assert TOKEN not in refused.reason


def test_a_page_without_the_token_says_nothing_of_it(ask: Any) -> None:
    for path in ("/", "/wrong/", "/page.js"):
        found = ask("GET", path, headers={"Host": HOST})
        assert found.status_code == 403
        assert TOKEN not in found.text


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:80",
        f"127.0.0.1.evil.example:{PORT}",
        "",
        f"[::1]:{PORT}",
    ],
)
def test_a_foreign_name_that_leads_here_is_refused(ask: Any, host: str) -> None:
    assert ask("GET", "", headers={"Host": host}).status_code == 421
    assert ask("POST", "files", headers={"Host": host, "Origin": SELF}, content=b"x").status_code == 421


def test_two_hosts_are_as_bad_as_none(ask: Any) -> None:
    found = ask.client.get(f"/{TOKEN}/", headers=[("Host", HOST), ("Host", HOST)])
    assert found.status_code == 421


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "none"])
def test_another_site_cannot_make_the_browser_change_anything(ask: Any, site: str) -> None:
    headers = {"Host": HOST, "Origin": SELF, "Sec-Fetch-Site": site}
    assert ask("POST", "files", headers=headers, content=b"x").status_code == 403
    assert ask("GET", "", headers=headers).status_code == (200 if site == "none" else 403)


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", f"https://{HOST}", "http://127.0.0.1", f"{SELF}.evil"]
)
def test_what_changes_something_says_that_it_comes_from_here(ask: Any, origin: str | None) -> None:
    headers = {"Host": HOST} | ({} if origin is None else {"Origin": origin})
    for method, path in (("POST", "files"), ("POST", "audits"), ("DELETE", "files/0"), ("POST", "audits/a/stop")):
        assert ask(method, path, headers=headers, content=b"x").status_code == 403
    assert ask("GET", "page.js", headers=headers).status_code == (200 if origin is None else 403)


@pytest.mark.parametrize("method", ["PUT", "OPTIONS", "TRACE", "CONNECT", "PATCH"])
def test_other_methods_are_refused_so_no_other_site_gets_leave(ask: Any, method: str) -> None:
    found = ask(method, "files", headers={"Host": HOST, "Origin": "http://evil.example"})
    assert found.status_code == 405
    assert "access-control-allow-origin" not in found.headers


def test_localhost_is_the_same_machine(ask: Any) -> None:
    headers = {"Host": f"localhost:{PORT}", "Origin": f"http://localhost:{PORT}"}
    assert ask("POST", "files?name=a", headers=headers, content=b"x").status_code == 200


def test_a_form_of_another_type_is_not_read(ask: Any) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        found = ask("POST", "audits", headers={"Host": HOST, "Origin": SELF, "Content-Type": kind}, content=b"{}")
        assert found.status_code == 415
