package lakelock.reader;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Kafka records of given offset ranges as columns, with their JSON values decoded: a data source for Spark.
 *
 * <p>Its columns are those of Spark's own Kafka source, and {@code plain}: the decoded value of a record whose value is
 * plain JSON of the wanted types. Of any other record it is null. With {@code keep_odd} there is also {@code odd}: whether
 * the record has a value that isn't plain.
 *
 * <p>The options: {@code version}, those that {@link Plan} lists, and Kafka's own, with the prefix {@code kafka.}.
 */
public final class KafkaRecords implements TableProvider {
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    StructType header = new StructType().add("key", DataTypes.StringType).add("value", DataTypes.BinaryType);
    Plan plan = Plan.of(options);
    StructType columns = new StructType()
        .add("key", DataTypes.BinaryType)
        .add("value", DataTypes.BinaryType)
        .add("topic", DataTypes.StringType)
        .add("partition", DataTypes.IntegerType)
        .add("offset", DataTypes.LongType)
        .add("timestamp", DataTypes.TimestampType)
        .add("headers", DataTypes.createArrayType(header))
        .add("plain", plan.schema());
    return plan.keepOdd() ? columns.add("odd", DataTypes.BooleanType) : columns;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Held(schema);
  }

  /** The table that a query reads. */
  private record Held(StructType all) implements Table, SupportsRead {
    @Override
    public String name() {
      return "Kafka records";
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
      return all;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new RecordsScan(Plan.of(options), all);
    }
  }
}
