"""From a coordination plan to a PySpark project: stages, the text of the job, the folder."""
