"""HTML pages in one file: figures with Plotly's script inside, so that a page needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

_CONTROLS = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"]}

_STYLE = """
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: #1f2937; background: #f6f7f9;
       margin: 0; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 28px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 0 0 4px; }
p { margin: 4px 0 12px; max-width: 90ch; } .lead { color: #4b5563; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 14px; margin: 20px 0; }
.card, section { background: #fff; border: 1px solid #e5e7eb; border-radius: 10px; }
.card { padding: 14px 18px; } .card b { display: block; font-size: 26px; line-height: 1.25; }
.card span { color: #4b5563; font-size: 14px; }
section { padding: 20px 22px 8px; margin: 18px 0; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 15px; margin-bottom: 14px; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid #eef0f3; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; } thead th { border-bottom: 2px solid #d1d5db; }
.bad { background: #fdecea; border-color: #f2b8b5; }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style><script>{script}</script></head>
<body><main>{body}</main></body></html>
"""


def whole_page(title: str, body: Sequence[str]) -> str:
    """Return a page of these parts, with everything that it needs inside."""
    return _PAGE.format(title=escape(title), style=_STYLE, script=get_plotlyjs(), body="\n".join(body))


def figure_section(title: str, text: str, figure: go.Figure) -> str:
    """Return a section of a page: a chart with its explanation."""
    drawn = figure.to_html(full_html=False, include_plotlyjs=False, config=_CONTROLS)
    return f"<section><h2>{title}</h2><p>{text}</p>{drawn}</section>"
