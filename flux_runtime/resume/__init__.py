"""The resume protocol as pure state machines: partition pairs that "resume after what they have".

The rules RS-1 to RS-24 are in `docs/explanation/flux-resume.md`; each stands beside the line that
implements it. Jobs run it. In the order in which data meets them:

- `flow`: stages, who feeds whom, limits; `messages`: all that travels.
- `replica`: one installed copy of a pair.
- `site`: all copies of one process, and what they have for other sites.
- `controller`: which copies exist.
"""
