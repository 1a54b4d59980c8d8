"""Charts described once, as Vega-Lite, and rendered as interactive HTML, PNG, SVG and PDF; offline."""
