package realtime;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/** Appends each result (k, n, total) with the time it came, in microseconds, to a file of its task. */
public class TimedWriter extends ForeachWriter<Row> {
  private static final long FLUSH_NS = 200_000_000L;
  private final String folder;
  private transient DataOutputStream out;
  private transient long flushed;

  public TimedWriter(String folder) { this.folder = folder; }

  @Override public boolean open(long partition, long epoch) {
    String name = partition + "-" + epoch + "-" + System.nanoTime() + ".bin";
    try {
      out = new DataOutputStream(
          new BufferedOutputStream(new FileOutputStream(new File(folder, name)), 1 << 16));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    flushed = System.nanoTime();
    return true;
  }

  @Override public void process(Row row) {
    try {
      out.writeLong(RowSource.nowUs());
      for (int i = 0; i < 3; i++) out.writeLong(row.getLong(i));
      if (System.nanoTime() - flushed > FLUSH_NS) {
        out.flush();
        flushed = System.nanoTime();
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override public void close(Throwable error) {
    try {
      out.close();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
