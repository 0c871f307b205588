"""Demonstrations: traffic that looks real, and what happens to a query that nobody coordinates.

- `files`: files as a streaming job meets them, written, read back and compared (the generators of
  the examples use them); `ads`: the traffic of an ad network; `orders`: how it may arrive.
- `dataflow`: the query, with its seal and without; `anomalies`: it runs, under many orders.
- `outcome`: what was counted; `show`: the same for people and as JSON.
"""
