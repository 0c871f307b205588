"""Results on their way to a reader."""

from __future__ import annotations

from flux_runtime.protocol.messages import Rows
from flux_runtime.site.codec import ROWS, RowsEncoder
from flux_runtime.site.connection import Connection
from flux_runtime.site.control_messages import Results, Role, encode
from flux_runtime.site.wire import Kind


def send_results(
    connection: Connection,
    encoder: RowsEncoder,
    found: list[tuple[int, Rows]],
    *,
    offset: int,
    ended: bool,
) -> None:
    """Send results, then how far they reach.

    Args:
        connection: to the reader.
        encoder: of that connection.
        found: (batch, rows).
        offset: where the reader is to go on.
        ended: whether nothing comes behind that.
    """
    for batch, rows in found:
        number = encoder.schema_number(rows.schema, connection.out)
        payload = encoder.payload(rows, number)
        connection.send(Kind.RESULTS, ROWS.pack(batch, number), payload)
    answer = encode(Results(offset, ended), speaker=Role.SITE, hearer=Role.CLIENT)
    connection.send(Kind.CONTROL, answer)
