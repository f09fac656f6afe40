"""Draw the page to sign in on, and the one that leads on after it."""

from __future__ import annotations

from router.render.page_frame import PageFrame
from router.render.pages import fill_template


def sign_in_page(
    frame: PageFrame, target: str, *, problem: str = "", oidc_url: str = "", takes_tokens: bool = True
) -> str:
    """Return the page to sign in on; ``target`` is the path to go to then, ``problem`` why the last try failed."""
    return fill_template(
        "sign_in.html", frame=frame, target=target, problem=problem, oidc_url=oidc_url, takes_tokens=takes_tokens
    )


def signed_in_page(frame: PageFrame, target: str) -> str:
    """Return a page of this server that leads on at once.

    A redirect would not do: a browser that comes from another site keeps a strict cookie back until the end.
    """
    return fill_template("signed_in.html", frame=frame, target=target)
