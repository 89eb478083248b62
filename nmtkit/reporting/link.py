"""A cell of a table that leads to a part of the page."""

from markupsafe import Markup

from nmtkit.visible import visible


class Link(str):
    """Text; on a page, a link to the element with the id `target`."""

    __slots__ = ("target",)
    target: str

    def __new__(cls, text: str, target: str) -> "Link":
        """Return `text`, which leads to `target`."""
        link = super().__new__(cls, text)
        link.target = target
        return link

    def __html__(self) -> Markup:
        """Return the link as a template prints it."""
        return Markup('<a href="#{}">{}</a>').format(self.target, visible(str(self)))
