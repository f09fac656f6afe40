"""The frame of a page in the console: links to the other pages, who asks, forms, and where its data can be had."""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class NavigationLink:
    """A link of the navigation; ``is_here`` marks the page that is shown."""

    title: str
    url: str
    is_here: bool = False


@dataclass(frozen=True, slots=True)
class PageFrame:
    """The additions of the console to a page. ``actions`` is markup that was escaped when it was made.

    ``data_links``: titles and URLs of the same figures as CSV and JSON. ``csrf_token`` goes into a hidden field of
    every form; it is "" for whoever has no session.
    """

    links: tuple[NavigationLink, ...]
    stylesheet: str
    scripts: tuple[str, ...]
    who: str = ""
    message: str = ""
    actions: Markup = field(default_factory=Markup)
    data_links: tuple[tuple[str, str], ...] = ()
    csrf_token: str = ""
    banner: str = ""

    def navigation(self) -> Markup:
        """Return the links as a list that marks the page that is shown, "" without links."""
        if not self.links:
            return Markup("")
        here = Markup(' aria-current="page"')
        links = Markup("").join(
            Markup('<a href="{}"{}>{}</a>').format(link.url, here if link.is_here else "", link.title)
            for link in self.links
        )
        return Markup('<nav aria-label="Console">{}</nav>').format(links)

    def footer(self) -> Markup:
        """Return links to the data, and who asks."""
        links = Markup(", ").join(Markup('<a href="{}">{}</a>').format(url, title) for title, url in self.data_links)
        data = Markup("Data: {}. ").format(links) if self.data_links else Markup("")
        return data + (Markup("Signed in as {}.").format(self.who) if self.who else Markup(""))

    def sign_out_form(self) -> Markup:
        """Return the form that ends a session, "" for whoever has none."""
        if not self.csrf_token:
            return Markup("")
        return Markup(
            '<form class="pick" method="post" action="/logout"><input type="hidden" name="csrf_token" value="{}">'
            "<button>Sign out</button></form>"
        ).format(self.csrf_token)
