import dlt
from pyspark.sql.functions import col, expr


@dlt.view
def users_cdc():
    return spark.readStream.schema(
        "userId BIGINT, name STRING, city STRING, operation STRING, sequenceNum BIGINT").json("/cdc/users")


dlt.create_streaming_table("users")

dlt.apply_changes(
    target="users",
    source="users_cdc",
    keys=["userId"],
    sequence_by=col("sequenceNum"),
    apply_as_deletes=expr("operation = 'DELETE'"),
    except_column_list=["operation", "sequenceNum"],
    stored_as_scd_type=1,
)
