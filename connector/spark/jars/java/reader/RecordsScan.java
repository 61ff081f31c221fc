package lakelock.reader;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** One query over the records: which columns it needs, and which task reads what. */
final class RecordsScan implements SupportsPushDownRequiredColumns, Scan, Batch {
  private final Plan plan;
  private final StructType all;
  private StructType needed;

  RecordsScan(Plan plan, StructType all) {
    this.plan = plan;
    this.all = all;
    needed = all;
  }

  @Override
  public void pruneColumns(StructType required) {
    // Whole columns only: a value is decoded and checked as a whole, whichever of its fields are needed.
    List<StructField> fields = new ArrayList<>();
    for (StructField field : all.fields()) {
      if (List.of(required.fieldNames()).contains(field.name())) {
        fields.add(field);
      }
    }
    needed = new StructType(fields.toArray(new StructField[0]));
  }

  @Override
  public Scan build() {
    return this;
  }

  @Override
  public StructType readSchema() {
    return needed;
  }

  @Override
  public String description() {
    return "Kafka records " + plan.ranges();
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    List<Plan.Range> ranges = split(SparkContext.getOrCreate().defaultParallelism());
    int tasks = Math.max(1, Math.min(plan.tasks(), ranges.size()));
    List<ArrayList<Plan.Range>> parts = new ArrayList<>();
    for (int i = 0; i < ranges.size(); i++) {
      if (i < tasks) {
        parts.add(new ArrayList<>());
      }
      parts.get(i % tasks).add(ranges.get(i));
    }
    return parts.stream().map(Part::new).toArray(InputPartition[]::new);
  }

  /** The ranges. If there are fewer than cores, large ones are split, so that every core has a share. */
  private List<Plan.Range> split(int cores) {
    int wanted = Math.min(cores, plan.tasks());
    if (plan.ranges().size() >= wanted) {
      return plan.ranges();
    }
    double all = plan.ranges().stream().mapToLong(Plan.Range::span).sum();
    List<Plan.Range> ranges = new ArrayList<>();
    for (Plan.Range range : plan.ranges()) {
      long pieces = Math.max(1, Math.round(range.span() * wanted / all));
      long start = range.start();
      for (long piece = 1; piece <= pieces; piece++) {
        long end = range.start() + (long) ((double) range.span() * piece / pieces);
        ranges.add(new Plan.Range(range.topic(), range.partition(), start, piece == pieces ? range.end() : end));
        start = end;
      }
    }
    return ranges;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Factory(plan, needed);
  }

  /** The ranges of one task. */
  private record Part(ArrayList<Plan.Range> ranges) implements InputPartition {}

  private record Factory(Plan plan, StructType needed) implements PartitionReaderFactory {
    @Override
    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      return new RecordsReader(plan, needed, ((Part) partition).ranges());
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException("columns only");
    }
  }
}
