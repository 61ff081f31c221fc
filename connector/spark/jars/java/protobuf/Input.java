package lakelock.protobuf;

/** Bytes in Protobuf's encoding, read one after the other. */
final class Input {
  static final int VARINT = 0, FIXED64 = 1, DELIMITED = 2, GROUP = 3, END_GROUP = 4, FIXED32 = 5;
  /** Levels of groups and messages within each other, as Protobuf's own libraries limit them. */
  static final int DEEPEST = 100;

  private final byte[] bytes;
  private int at;
  private int end;

  Input(byte[] bytes, int at, int end) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
  }

  boolean atEnd() {
    return at >= end;
  }

  /** Read no further than this many bytes from here. Returns where the bytes ended before, for {@link #reopen}. */
  int limit(int length) {
    int before = end;
    end = at + length;
    return before;
  }

  void reopen(int before) {
    end = before;
  }

  long varint() throws Problem {
    return varint(10);
  }

  private long varint(int most) throws Problem {
    long found = 0;
    for (int place = 0; place < most; place++) {
      byte next = one();
      // The tenth byte has room for one bit.
      if (place == 9 && (next & 0xFE) != 0) {
        break;
      }
      found |= (long) (next & 0x7F) << 7 * place;
      if (next >= 0) {
        return found;
      }
    }
    throw new Problem("a number of it has too many bytes");
  }

  private byte one() throws Problem {
    if (at >= end) {
      throw ended();
    }
    return bytes[at++];
  }

  private static Problem ended() {
    return new Problem("the bytes end too early");
  }

  /** The number and the wire type of the next field. */
  int tag() throws Problem {
    long found = varint(5);
    int number = (int) (found >>> 3), type = (int) found & 7;
    if (found >>> 32 != 0 || number == 0 || type > FIXED32) {
      throw new Problem("there are bytes in it that begin no field");
    }
    return (int) found;
  }

  int length() throws Problem {
    long found = varint(5);
    if (found > end - at) {
      throw ended();
    }
    return (int) found;
  }

  long fixed(int size) throws Problem {
    if (end - at < size) {
      at = end;
      throw ended();
    }
    long found = 0;
    for (int place = 0; place < size; place++) {
      found |= (bytes[at++] & 0xFFL) << 8 * place;
    }
    return found;
  }

  byte[] take(int length) {
    byte[] found = new byte[length];
    System.arraycopy(bytes, at, found, 0, length);
    at += length;
    return found;
  }

  /** Pass over the value of a field. */
  void skip(int number, int type, int depth) throws Problem {
    switch (type) {
      case VARINT -> varint();
      case FIXED64 -> fixed(8);
      case FIXED32 -> fixed(4);
      case DELIMITED -> {
        int length = length();
        at += length;
      }
      case GROUP -> {
        if (depth >= DEEPEST) {
          throw new Problem("more than " + DEEPEST + " groups are within each other");
        }
        while (true) {
          int tag = tag();
          if ((tag & 7) == END_GROUP) {
            if (tag >>> 3 != number) {
              throw new Problem("a group ends that hasn't begun");
            }
            return;
          }
          skip(tag >>> 3, tag & 7, depth + 1);
        }
      }
      default -> throw new Problem("a group ends that hasn't begun");
    }
  }
}
