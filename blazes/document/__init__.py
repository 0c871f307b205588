"""Documents: what Blazes shows, once, for terminals, Markdown and pages.

Whoever has something to show (`blazes.report`, `verify`, `simulate`, `demo`, commands) fills a
`Document`; what it looks like is decided here. Nothing here knows of dataflows or runs, and nothing
of ours is imported, so that the laboratory draws with it too.

- `blocks`: what a document consists of.
- `terminal`, `markdown`, `html`: the renderers. `screen`: a terminal that is redrawn in place.
  Only these two, `terminal` and `screen`, import rich.
- `plain`: what is safe to print, to escape, to draw with.
- `palette`: every colour, by role, for light and dark screens.
- `derivation`: derivations as text.
- `diagram`: a graph of components and streams, and as text for Mermaid and Graphviz; `graph` lays
  it out as SVG.
- `svg`: the parts of a picture; `charts` and `placement` draw with them what happened over time.
"""
