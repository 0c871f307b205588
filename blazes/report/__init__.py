"""Reports about a plan and a running job: documents for people, and data for programs.

- `index`, `findings`, `words`, `results`: what there is to say, and the sentences.
- `document`: the documents about a plan, which `blazes.document` renders; `notation` and `diagram`
  are their labels, derivations and drawing.
- `json_result` with its `result_schema`, and `sarif`: the same for programs.
- `jobs`: the streaming jobs of a repository, the worst first. `problems`: mistakes in a file.
- `rules`, `examples`: the pages about rules and codes.
- `progress`, `live`: a job while it runs.
"""
