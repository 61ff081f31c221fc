package lakelock.protobuf;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** A value that is no message: how it is written, and the type of its column. Nothing is rounded or cut. */
final class Scalar {
  /** As in Protobuf's FieldDescriptorProto.Type. */
  private static final int
      DOUBLE = 1, FLOAT = 2, INT64 = 3, UINT64 = 4, INT32 = 5, FIXED64 = 6, FIXED32 = 7, BOOL = 8, STRING = 9,
      BYTES = 12, UINT32 = 13, ENUM = 14, SFIXED32 = 15, SFIXED64 = 16, SINT32 = 17, SINT64 = 18;

  /** Columns. That of an enum by its names is a TEXT. */
  private static final int INT = 0, BIGINT = 1, DECIMAL = 2, REAL = 3, WIDE = 4, TEXT = 5, OTHER = 6;

  final int wireType;
  private final int kind;
  private final int target;
  private final String of;
  private final Map<Integer, String> names = new HashMap<>();

  Scalar(ByteBuffer from) {
    kind = from.getInt();
    target = from.getInt();
    of = Plan.text(from);
    for (int left = from.getInt(); left > 0; left--) {
      names.put(from.getInt(), Plan.text(from));
    }
    wireType =
        switch (kind) {
          case DOUBLE, FIXED64, SFIXED64 -> Input.FIXED64;
          case FLOAT, FIXED32, SFIXED32 -> Input.FIXED32;
          case STRING, BYTES -> Input.DELIMITED;
          default -> Input.VARINT;
        };
  }

  /** The value as it was sent: bytes, or a number's bits. */
  Object read(Input input) throws Problem {
    return switch (wireType) {
      case Input.DELIMITED -> input.take(input.length());
      case Input.FIXED64 -> input.fixed(8);
      case Input.FIXED32 -> input.fixed(4);
      default -> input.varint();
    };
  }

  /** The value where none was sent. */
  Object none() throws Problem {
    return made(wireType == Input.DELIMITED ? new byte[0] : (Object) 0L);
  }

  Object made(Object found) throws Problem {
    if (found instanceof byte[] bytes) {
      return kind == BYTES ? bytes : text(bytes);
    }
    long bits = (Long) found;
    switch (kind) {
      case DOUBLE:
        return Double.longBitsToDouble(bits);
      case FLOAT:
        float read = Float.intBitsToFloat((int) bits);
        if (target == WIDE) {
          return (double) read;
        }
        return read;
      case BOOL:
        if (bits != 0 && bits != 1) {
          throw new Problem(Long.toUnsignedString(bits) + " is neither true nor false");
        }
        return bits == 1;
      case UINT64:
      case FIXED64:
        return bits >= 0 ? whole(bits) : large(bits);
      case SINT32:
      case SINT64:
        bits = Plan.zigzag(bits);
        break;
      case SFIXED32:
        bits = (int) bits;
        break;
      default:
    }
    long low = kind == UINT32 ? 0 : Integer.MIN_VALUE;
    long high = kind == UINT32 ? 0xFFFF_FFFFL : Integer.MAX_VALUE;
    boolean narrow = kind == INT32 || kind == SINT32 || kind == UINT32 || kind == ENUM;
    if (narrow && (bits < low || bits > high)) {
      throw new Problem(bits + " has more than 32 bits");
    }
    return kind == ENUM && target == TEXT ? named((int) bits) : whole(bits);
  }

  private Object whole(long number) throws Problem {
    if (target == DECIMAL) {
      return BigDecimal.valueOf(number);
    }
    if (target == BIGINT) {
      return number;
    }
    if (number < Integer.MIN_VALUE || number > Integer.MAX_VALUE) {
      throw new Problem(number + " is more than an INT can hold");
    }
    return (int) number;
  }

  /** A number of 64 bits whose highest is set. */
  private Object large(long bits) throws Problem {
    if (target != DECIMAL) {
      throw new Problem(Long.toUnsignedString(bits) + " is more than its column can hold");
    }
    return new BigDecimal(new BigInteger(Long.toUnsignedString(bits)));
  }

  private String named(int number) throws Problem {
    String name = names.get(number);
    if (name == null) {
      throw new Problem("the enum " + of + " has no number " + number);
    }
    return name;
  }

  private static String text(byte[] bytes) throws Problem {
    for (byte each : bytes) {
      if (each < 0) {
        try {
          return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException error) {
          throw new Problem("not UTF-8 text");
        }
      }
    }
    return new String(bytes, StandardCharsets.ISO_8859_1);
  }
}
