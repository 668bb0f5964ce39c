"""The shapes and colours of a picture: boxes with text, wires, and a style for light and dark."""

from collections.abc import Sequence

from gpuprov.core.sanitize import in_markup

LIGHT = """
text{font:11px system-ui,"Segoe UI","DejaVu Sans",Arial,sans-serif;fill:#1f2328}
.t{font-size:17px;font-weight:600}.n{font-size:12px;font-weight:600}.s{font-size:10.5px;fill:#57606a}
.paper{fill:#ffffff}.b{stroke:#8c959f;stroke-width:1}
.socket{fill:#eaeef2}.host{fill:#f6f8fa}.port{fill:#f6f8fa}.switch{fill:#ddf4ff;stroke:#54aeff}
.gpu{fill:#dafbe1;stroke:#2da44e}.hca{fill:#fff8c5;stroke:#bf8700}.nvswitch{fill:#dafbe1;stroke:#2da44e}.band{fill:#f0fff4;stroke:#2da44e}
.bad{fill:#ffebe9;stroke:#cf222e;stroke-width:3}.w{fill:#cf222e}
.wire{stroke:#8c959f;stroke-width:1.5;fill:none}.nv{stroke:#2da44e;stroke-width:3;fill:none}.l{fill:#1a7f37;font-weight:600}
"""
DARK = """
text{fill:#e6edf3}.s{fill:#9198a1}.paper{fill:#0d1117}.b{stroke:#656c76}
.socket{fill:#262c36}.host{fill:#151b23}.port{fill:#151b23}.switch{fill:#0c2d6b;stroke:#4493f8}
.gpu{fill:#0f3d22;stroke:#3fb950}.hca{fill:#3d2e00;stroke:#d29922}.nvswitch{fill:#0f3d22;stroke:#3fb950}.band{fill:#0b2415;stroke:#3fb950}
.bad{fill:#4c1015;stroke:#f85149}.w{fill:#ff7b72}
.wire{stroke:#656c76}.nv{stroke:#3fb950}.l{fill:#56d364}
"""
STYLE = f"{LIGHT}@media (prefers-color-scheme: dark) {{{DARK}}}\n"
LINE = 14
# Maximum width of a character in the small and in the bold font.
SMALL, LARGE = 6.0, 7.4


class Canvas:
    """Shapes in drawing order; later ones lie on top."""

    def __init__(self, style: str = STYLE) -> None:
        self.style, self.parts = style, list[str]()

    def box(self, x: float, y: float, width: float, height: float, kind: str, words: Sequence[tuple[str, str]]) -> None:
        """Draw a box with lines of text, each with its class; a line that is too long is cut, and complete in the
        tooltip."""
        self.begin("\n".join(word for word, _ in words if word))
        self.rect(f"b {kind}", x, y, width, height, rounded=4)
        first = y + LINE if len(words) > 1 else y + height / 2 + 4
        for number, (word, style) in enumerate(words):
            fits = int((width - 10) / (LARGE if style == "n" else SMALL))
            self.text(x + 6, first + number * LINE, word if len(word) <= fits else f"{word[: fits - 1]}…", style)
        self.end()

    def begin(self, tooltip: str) -> None:
        """Begin a group whose shapes, until `end`, have this tooltip."""
        self.parts.append(f"<g><title>{in_markup(tooltip)}</title>" if tooltip else "<g>")

    def end(self) -> None:
        self.parts.append("</g>")

    def rect(self, style: str, x: float, y: float, width: float, height: float, rounded: float = 0) -> None:
        corners = f' rx="{rounded:g}"' if rounded else ""
        self.parts.append(f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{corners}/>')

    def text(self, x: float, y: float, word: str, style: str, anchor: str = "start", turned: int = 0) -> None:
        where = "" if anchor == "start" else f' text-anchor="{anchor}"'
        where += f' transform="rotate({turned} {x:g} {y:g})"' if turned else ""
        if word:
            self.parts.append(f'<text class="{style}" x="{x:g}" y="{y:g}"{where}>{in_markup(word)}</text>')

    def line(self, style: str, *points: tuple[float, float]) -> None:
        self.parts.append(f'<path class="{style}" d="M{" L".join(f"{x:g} {y:g}" for x, y in points)}"/>')

    def file(self, title: str, width: float, height: float) -> str:
        """Return the self-contained SVG file."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
                f'width="{width:g}" height="{height:g}" style="max-width:100%;height:auto" role="img">',
                f"<title>{in_markup(title)}</title>",
                f"<style>{self.style}</style>",
                f'<rect class="paper" x="0" y="0" width="{width:g}" height="{height:g}"/>',
                *self.parts,
                "</svg>\n",
            ]
        )
