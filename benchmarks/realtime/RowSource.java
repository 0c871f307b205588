package realtime;

import java.io.Serializable;
import java.time.Instant;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A source for real-time mode, which takes none of Spark's own but Kafka: row i (k = i % keys,
 * v = i % 1009) is there at startUs + i / rate, and partition p of P holds the rows i = j * P + p.
 */
public class RowSource implements TableProvider {
  static final StructType SCHEMA =
      new StructType().add("k", DataTypes.LongType).add("v", DataTypes.LongType);

  @Override public StructType inferSchema(CaseInsensitiveStringMap options) { return SCHEMA; }

  @Override public Table getTable(StructType s, Transform[] t, Map<String, String> properties) {
    return new Rows();
  }

  static long nowUs() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000L + now.getNano() / 1_000;
  }

  static class Rows implements Table, SupportsRead {
    @Override public String name() { return "rows"; }
    @Override public StructType schema() { return SCHEMA; }
    @Override public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.MICRO_BATCH_READ);
    }
    @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      Settings settings = new Settings(options);
      return () -> new Scan() {
        @Override public StructType readSchema() { return SCHEMA; }
        @Override public MicroBatchStream toMicroBatchStream(String checkpoint) {
          return new Stream(settings);
        }
      };
    }
  }

  static class Settings implements Serializable {
    final int partitions;
    final double rate;
    final long keys, startUs;
    Settings(CaseInsensitiveStringMap options) {
      partitions = options.getInt("partitions", 1);
      rate = options.getDouble("rate", 1000);
      keys = options.getLong("keys", 100);
      startUs = options.getLong("startUs", 0);
    }
    long dueUs(long row) { return startUs + (long) (row * 1e6 / rate); }
  }

  static class Place extends Offset {
    final long[] next;
    Place(long[] next) { this.next = next; }
    @Override public String json() { return Arrays.toString(next); }
  }

  static class Part implements InputPartition, PartitionOffset {
    final Settings settings;
    final int number;
    final long next;
    Part(Settings settings, int number, long next) {
      this.settings = settings;
      this.number = number;
      this.next = next;
    }
  }

  static class Stream implements MicroBatchStream, SupportsRealTimeMode {
    final Settings settings;
    Stream(Settings settings) { this.settings = settings; }
    @Override public Offset initialOffset() { return new Place(new long[settings.partitions]); }
    @Override public Offset deserializeOffset(String json) {
      String[] parts = json.replaceAll("[\\[\\] ]", "").split(",");
      return new Place(Arrays.stream(parts).mapToLong(Long::parseLong).toArray());
    }
    @Override public Offset latestOffset() {
      long due = Math.max(0, (long) ((nowUs() - settings.startUs) * settings.rate / 1e6));
      long[] next = new long[settings.partitions];
      Arrays.fill(next, due / settings.partitions);
      return new Place(next);
    }
    @Override public InputPartition[] planInputPartitions(Offset from, Offset to) {
      throw new UnsupportedOperationException();
    }
    @Override public InputPartition[] planInputPartitions(Offset from) {
      long[] next = ((Place) from).next;
      InputPartition[] parts = new InputPartition[next.length];
      for (int p = 0; p < next.length; p++) parts[p] = new Part(settings, p, next[p]);
      return parts;
    }
    @Override public Offset mergeOffsets(PartitionOffset[] parts) {
      long[] next = new long[settings.partitions];
      for (PartitionOffset part : parts) next[((Part) part).number] = ((Part) part).next;
      return new Place(next);
    }
    @Override public PartitionReaderFactory createReaderFactory() { return new Readers(); }
    @Override public void commit(Offset end) {}
    @Override public void stop() {}
  }

  static class Readers implements PartitionReaderFactory {
    @Override public PartitionReader<InternalRow> createReader(InputPartition part) {
      return new Reader((Part) part);
    }
  }

  static class Reader implements SupportsRealTimeRead<InternalRow> {
    final Settings settings;
    final int number;
    final UnsafeRowWriter writer = new UnsafeRowWriter(2);
    long next;
    Reader(Part part) {
      settings = part.settings;
      number = part.number;
      next = part.next;
    }
    @Override public boolean next() { throw new UnsupportedOperationException(); }
    @Override public RecordStatus nextWithTimeout(Long timeoutMs) { return await(timeoutMs); }
    @Override public RecordStatus nextWithTimeout(Long startedMs, Long timeoutMs) {
      return await(timeoutMs);
    }
    private RecordStatus await(long timeoutMs) {
      long row = next * settings.partitions + number;
      long dueUs = settings.dueUs(row), nowUs = nowUs(), endUs = nowUs + timeoutMs * 1000;
      while (nowUs < dueUs) {
        if (nowUs >= endUs || Thread.currentThread().isInterrupted()) {
          return RecordStatus.newStatusWithoutArrivalTime(false);
        }
        LockSupport.parkNanos((Math.min(dueUs, endUs) - nowUs) * 1000L);
        nowUs = nowUs();
      }
      writer.reset();
      writer.write(0, row % settings.keys);
      writer.write(1, row % 1009);
      next++;
      return RecordStatus.newStatusWithArrivalTimeMs(dueUs / 1000);
    }
    @Override public InternalRow get() { return writer.getRow(); }
    @Override public PartitionOffset getOffset() { return new Part(settings, number, next); }
    @Override public void close() {}
  }
}
