"""Commits that know themselves, and drivers that know whether they may still commit.

In the order in which a job meets them: `driver` (who runs a job, and its epoch), `fence` (stops a
driver that has been replaced), `owner` (whose a folder of results is, and up to where it goes),
`record` (what a commit holds and covers, written into it),
`mount` (whether a file system renames a folder in one step). `kept_folder` keeps a state in an
object store, of which it asks what `objects` says. Nothing here imports Spark, so that a folder can
be checked without it.
"""
