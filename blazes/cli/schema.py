"""Print the JSON Schema (draft-07) of the dataflow file, for editors, or of the JSON result."""

from __future__ import annotations

import argparse
import json
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--result", action="store_true", help="of what `blazes analyze --format json` prints"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a schema."""
    from annotations.file.schema import json_schema
    from blazes.report.result_schema import result_schema

    schema = result_schema() if arguments.result else json_schema()
    json.dump(schema, sys.stdout, indent=2, ensure_ascii=False)
    print()
    return 0
