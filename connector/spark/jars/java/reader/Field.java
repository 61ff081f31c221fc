package lakelock.reader;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.ZoneId;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Reads JSON values of one type from a text into a column.
 *
 * <p>It takes a value only if the decoder in Spark SQL gives the same, without loss. It leaves all else to that decoder,
 * also values that are merely unusual.
 */
abstract class Field {
  /** Whether null is plain. */
  private boolean nullable;

  /** Read the value at the cursor, which isn't null, into a row. False: the value isn't plain. */
  abstract boolean value(JsonText text, WritableColumnVector to, int row);

  /** The reader of a type, or null if values of the type are never plain. */
  static Field of(DataType type, ZoneId zone, boolean nullable) {
    Field field = of(type, zone);
    if (field != null) {
      field.nullable = nullable;
    }
    return field;
  }

  private static Field of(DataType type, ZoneId zone) {
    if (type instanceof StructType struct) {
      return Struct.of(struct, zone, false);
    }
    if (type instanceof ArrayType array) {
      Field element = of(array.elementType(), zone, array.containsNull());
      return element == null ? null : new Array(element);
    }
    if (type instanceof MapType map) {
      Field value = of(map.valueType(), zone, map.valueContainsNull());
      boolean named = map.keyType().equals(DataTypes.StringType);
      return value == null || !named ? null : new MapOfNames(value);
    }
    if (type instanceof DecimalType decimal) {
      return new Number10(decimal.precision(), decimal.scale());
    }
    if (type.equals(DataTypes.StringType)) {
      return new Chars();
    }
    if (type.equals(DataTypes.BooleanType)) {
      return new Bool();
    }
    if (type.equals(DataTypes.LongType)) {
      return new Whole(Long.MIN_VALUE, Long.MAX_VALUE, WritableColumnVector::putLong);
    }
    if (type.equals(DataTypes.IntegerType)) {
      return new Whole(Integer.MIN_VALUE, Integer.MAX_VALUE, (to, row, value) -> to.putInt(row, (int) value));
    }
    if (type.equals(DataTypes.ShortType)) {
      return new Whole(Short.MIN_VALUE, Short.MAX_VALUE, (to, row, value) -> to.putShort(row, (short) value));
    }
    if (type.equals(DataTypes.ByteType)) {
      return new Whole(Byte.MIN_VALUE, Byte.MAX_VALUE, (to, row, value) -> to.putByte(row, (byte) value));
    }
    if (type.equals(DataTypes.DoubleType)) {
      return new Floating(false);
    }
    if (type.equals(DataTypes.FloatType)) {
      return new Floating(true);
    }
    if (type.equals(DataTypes.DateType)) {
      return new Dated();
    }
    if (type.equals(DataTypes.TimestampType)) {
      return new Timed(zone);
    }
    if (type.equals(DataTypes.TimestampNTZType)) {
      return new Timed(null);
    }
    return null;
  }

  /** Read a value or null. */
  final boolean read(JsonText text, WritableColumnVector to, int row) {
    if (text.peek() != 'n') {
      return value(text, to, row);
    }
    to.putNull(row);
    return nullable && text.word("null");
  }

  private static final class Bool extends Field {
    @Override
    boolean value(JsonText text, WritableColumnVector to, int row) {
      boolean is = text.peek() == 't';
      to.putBoolean(row, is);
      return text.word(is ? "true" : "false");
    }
  }

  private interface Put {
    void put(WritableColumnVector to, int row, long value);
  }

  private static final class Whole extends Field {
    private final long least;
    private final long most;
    private final Put put;

    Whole(long least, long most, Put put) {
      this.least = least;
      this.most = most;
      this.put = put;
    }

    @Override
    boolean value(JsonText text, WritableColumnVector to, int row) {
      if (!text.number() || text.hasFraction || text.hasExponent || text.digitCount > 18) {
        return false;
      }
      long value = text.negative ? -text.digits : text.digits;
      put.put(to, row, value);
      return value >= least && value <= most;
    }
  }

  private static final class Floating extends Field {
    /** Powers of ten that a double holds exactly. */
    private static final double[] TENS = new double[23];

    static {
      TENS[0] = 1;
      for (int i = 1; i < TENS.length; i++) {
        TENS[i] = TENS[i - 1] * 10;
      }
    }

    private final boolean single;

    Floating(boolean single) {
      this.single = single;
    }

    @Override
    boolean value(JsonText text, WritableColumnVector to, int row) {
      if (!text.number()) {
        return false;
      }
      if (text.negative && text.digits == 0) {
        return false; // -0 and -0.0 differ for some parsers
      }
      double value;
      if (!text.hasExponent && text.digitCount <= 15 && text.fractionDigits < TENS.length) {
        // Both are exact, so the quotient is rounded once, as it should be.
        value = text.digits / TENS[text.fractionDigits];
        value = text.negative ? -value : value;
      } else {
        value = Double.parseDouble(text.text());
      }
      boolean isZero = text.digitCount == 0;
      if (!single) {
        to.putDouble(row, value);
        return !Double.isInfinite(value) && (value == 0) == isZero;
      }
      float rounded = Float.parseFloat(text.text());
      to.putFloat(row, rounded);
      return rounded == (float) value && !Float.isInfinite(rounded) && (rounded == 0) == isZero;
    }
  }

  /** A DECIMAL. Digits below its scale have to be zeros. */
  private static final class Number10 extends Field {
    private static final long[] TENS = new long[19];

    static {
      TENS[0] = 1;
      for (int i = 1; i < TENS.length; i++) {
        TENS[i] = TENS[i - 1] * 10;
      }
    }

    private final int precision;
    private final int scale;

    Number10(int precision, int scale) {
      this.precision = precision;
      this.scale = scale;
    }

    @Override
    boolean value(JsonText text, WritableColumnVector to, int row) {
      if (text.peek() == '"') {
        // A string is taken if it is a number, and nothing else.
        if (!text.string()) {
          return false;
        }
        int stop = text.from + text.length;
        if (!text.number(text.source, text.from, stop) || text.from + text.length != stop) {
          return false;
        }
      } else if (!text.number()) {
        return false;
      }
      int missing = scale - text.fractionDigits;
      if (!text.hasExponent && text.digitCount <= 18 && missing >= 0 && text.digitCount + missing <= 18 && precision <= 18) {
        long unscaled = text.digits * TENS[missing];
        if (unscaled >= TENS[precision]) {
          return false;
        }
        unscaled = text.negative ? -unscaled : unscaled;
        if (precision <= 9) {
          to.putInt(row, (int) unscaled);
        } else {
          to.putLong(row, unscaled);
        }
        return true;
      }
      BigDecimal value = new BigDecimal(text.text());
      BigDecimal stripped = value.stripTrailingZeros();
      if (stripped.scale() > scale || stripped.precision() - stripped.scale() > precision - scale) {
        return false;
      }
      to.putDecimal(row, Decimal.apply(value.setScale(scale), precision, scale), precision);
      return true;
    }
  }

  private static final class Chars extends Field {
    @Override
    boolean value(JsonText text, WritableColumnVector to, int row) {
      if (text.peek() == '"' ? !text.string() : !whole(text)) {
        return false;
      }
      to.putByteArray(row, text.source, text.from, text.length);
      return true;
    }

    /** A number whose text is the same for all parsers: PostgreSQL's txId is one, and Oracle's is a string. */
    private static boolean whole(JsonText text) {
      boolean plain = text.number() && !text.hasFraction && !text.hasExponent && text.digitCount <= 18;
      return plain && !(text.negative && text.digits == 0);
    }
  }

  private static final class Dated extends Field {
    @Override
    boolean value(JsonText text, WritableColumnVector to, int row) {
      if (text.peek() != '"' || !text.string() || text.length != Times.DATE) {
        return false;
      }
      int day = Times.day(text.source, text.from);
      to.putInt(row, day);
      return day != Times.NONE;
    }
  }

  private static final class Timed extends Field {
    private final ZoneId zone;

    Timed(ZoneId zone) {
      this.zone = zone;
    }

    @Override
    boolean value(JsonText text, WritableColumnVector to, int row) {
      if (text.peek() != '"' || !text.string()) {
        return false;
      }
      long micros = Times.micros(text.source, text.from, text.length, zone);
      to.putLong(row, micros);
      return micros != Times.NOT_PLAIN;
    }
  }

  private static final class Array extends Field {
    private final Field element;

    Array(Field element) {
      this.element = element;
    }

    @Override
    boolean value(JsonText text, WritableColumnVector to, int row) {
      if (!text.take('[')) {
        return false;
      }
      WritableColumnVector elements = to.arrayData();
      int start = elements.getElementsAppended();
      int count = 0;
      boolean plain = true;
      if (!text.take(']')) {
        do {
          elements.reserve(start + count + 1);
          plain = element.read(text, elements, start + count);
          count++;
        } while (plain && text.take(','));
        plain = plain && text.take(']');
      }
      // Also if it isn't plain: what was written there must not be written over, for a null would stay.
      elements.addElementsAppended(count);
      to.putArray(row, start, count);
      return plain;
    }
  }

  private static final class MapOfNames extends Field {
    private final Field values;

    MapOfNames(Field values) {
      this.values = values;
    }

    @Override
    boolean value(JsonText text, WritableColumnVector to, int row) {
      if (!text.take('{')) {
        return false;
      }
      WritableColumnVector names = to.getChild(0);
      WritableColumnVector each = to.getChild(1);
      int start = names.getElementsAppended();
      int count = 0;
      boolean plain = true;
      Set<String> seen = new HashSet<>();
      if (!text.take('}')) {
        do {
          names.reserve(start + count + 1);
          each.reserve(start + count + 1);
          plain = text.name();
          if (plain) {
            names.putByteArray(start + count, text.source, text.from, text.length);
            plain = seen.add(new String(text.source, text.from, text.length, StandardCharsets.UTF_8))
                && text.take(':')
                && values.read(text, each, start + count);
          }
          count++;
        } while (plain && text.take(','));
        plain = plain && text.take('}');
      }
      names.addElementsAppended(count);
      each.addElementsAppended(count);
      to.putArray(row, start, count);
      return plain;
    }
  }

  /** An object with the fields of a STRUCT. */
  static final class Struct extends Field {
    private final byte[][] names;
    private final Field[] fields;
    private final boolean unknownIsPlain;

    /** The number of the object in which the field was seen last. */
    private final long[] seen;

    private long objects;

    /** Where in the text the values of the last object began and ended. */
    private final int[] starts;

    private final int[] ends;

    private Struct(byte[][] names, Field[] fields, boolean unknownIsPlain) {
      this.names = names;
      this.fields = fields;
      this.unknownIsPlain = unknownIsPlain;
      seen = new long[fields.length];
      starts = new int[fields.length];
      ends = new int[fields.length];
    }

    /** Null if a field's type is never plain. {@code refuseUnknown}: a field that the STRUCT lacks isn't plain. */
    static Struct of(StructType type, ZoneId zone, boolean refuseUnknown) {
      StructField[] parts = type.fields();
      byte[][] names = new byte[parts.length][];
      Field[] fields = new Field[parts.length];
      for (int i = 0; i < parts.length; i++) {
        names[i] = parts[i].name().getBytes(StandardCharsets.UTF_8);
        fields[i] = Field.of(parts[i].dataType(), zone, parts[i].nullable());
        if (fields[i] == null) {
          return null;
        }
      }
      return new Struct(names, fields, !refuseUnknown);
    }

    @Override
    boolean value(JsonText text, WritableColumnVector to, int row) {
      if (!text.take('{')) {
        return false;
      }
      long object = ++objects;
      int next = 0;
      if (!text.take('}')) {
        do {
          if (!text.name()) {
            return false;
          }
          int field = find(text, next);
          if (field == UNSURE || !text.take(':')) {
            return false;
          }
          if (field == UNKNOWN) {
            if (!unknownIsPlain || !text.skip(0)) {
              return false;
            }
            continue;
          }
          if (seen[field] == object) {
            return false;
          }
          seen[field] = object;
          WritableColumnVector column = to.getChild(field);
          column.reserve(row + 1);
          text.peek();
          starts[field] = text.at;
          if (!fields[field].read(text, column, row)) {
            return false;
          }
          ends[field] = text.at;
          next = field + 1;
        } while (text.take(','));
        if (!text.take('}')) {
          return false;
        }
      }
      for (int field = 0; field < fields.length; field++) {
        if (seen[field] != object) {
          if (!fields[field].nullable) {
            return false;
          }
          WritableColumnVector column = to.getChild(field);
          column.reserve(row + 1);
          column.putNull(row);
        }
      }
      return true;
    }

    /** Whether the last object had the field. */
    boolean sawLast(int field) {
      return seen[field] == objects;
    }

    int startOf(int field) {
      return starts[field];
    }

    int endOf(int field) {
      return ends[field];
    }

    private static final int UNKNOWN = -1;
    private static final int UNSURE = -2;

    /** The field of the name that was read; mostly it is {@code next}. UNSURE: names in another case, say. */
    private int find(JsonText text, int next) {
      if (next < names.length && same(names[next], text)) {
        return next;
      }
      for (int i = 0; i < names.length; i++) {
        if (same(names[i], text)) {
          return i;
        }
      }
      for (int k = text.from; k < text.from + text.length; k++) {
        if (text.source[k] < 0) {
          return UNSURE;
        }
      }
      for (byte[] name : names) {
        if (alike(name, text)) {
          return UNSURE;
        }
      }
      return UNKNOWN;
    }

    private static boolean same(byte[] name, JsonText text) {
      return Arrays.equals(name, 0, name.length, text.source, text.from, text.from + text.length);
    }

    /** Whether an ASCII name differs in case only. A name of the STRUCT that isn't ASCII may be like any. */
    private static boolean alike(byte[] name, JsonText text) {
      for (byte c : name) {
        if (c < 0) {
          return true;
        }
      }
      if (name.length != text.length) {
        return false;
      }
      for (int k = 0; k < name.length; k++) {
        if (lower(name[k]) != lower(text.source[text.from + k])) {
          return false;
        }
      }
      return true;
    }

    private static int lower(byte c) {
      return c >= 'A' && c <= 'Z' ? c + 32 : c;
    }
  }
}
