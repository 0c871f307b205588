"""The surroundings and the attackers of the resume protocol (`flux_runtime.resume`).

- `world`: sites, links, controller and faults, and one checker per concern.
- `sweep`: random schedules; `explore`: all schedules of small configurations; `mutations`: planted
  mistakes.
"""
