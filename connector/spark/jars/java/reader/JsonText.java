package lakelock.reader;

import java.nio.charset.StandardCharsets;

/**
 * A cursor over the bytes of one JSON text. Strict: RFC 8259 in valid UTF-8.
 *
 * <p>Every method that reads returns false if the text isn't plain: broken, or so unusual that the decoder in Spark SQL
 * shall decide. The cursor is then somewhere in the text, and the text has to be given up.
 */
final class JsonText {
  private static final int DEEPEST = 200;
  private static final int LONGEST_NUMBER = 300;
  private static final int LONGEST_EXPONENT = 3;
  private static final int LONGEST_STRING = 10_000_000;
  private static final int LONGEST_NAME = 10_000;

  byte[] bytes;
  int at;
  private int end;

  /** The content of the string, or the text of the number, that was read last. */
  byte[] source;

  int from;
  int length;

  /** Of the number that was read last: its digits without a point, exact if there are at most 18; without its sign. */
  long digits;

  int digitCount;
  int fractionDigits;
  boolean negative;
  boolean hasFraction;
  boolean hasExponent;

  private byte[] unescaped = new byte[256];

  /** Read the text that begins at {@code start}. */
  void open(byte[] text, int start) {
    bytes = text;
    at = start;
    end = text.length;
  }

  /** The next byte that isn't blank, or 0 at the end. The cursor stands on it. */
  byte peek() {
    while (at < end) {
      byte c = bytes[at];
      if (c > ' ' || c < 0) {
        return c;
      }
      if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
        return c;
      }
      at++;
    }
    return 0;
  }

  boolean atEnd() {
    peek();
    return at >= end;
  }

  /** Whether the next byte is this one; if so, it is passed. */
  boolean take(char wanted) {
    if (peek() != wanted || at >= end) {
      return false;
    }
    at++;
    return true;
  }

  /** Whether the next bytes are this word; if so, they are passed. */
  boolean word(String word) {
    int size = word.length();
    if (end - at < size) {
      return false;
    }
    for (int i = 0; i < size; i++) {
      if (bytes[at + i] != word.charAt(i)) {
        return false;
      }
    }
    at += size;
    return true;
  }

  /** Read the name of a field; the cursor stands on its quote. */
  boolean name() {
    return peek() == '"' && string() && length <= LONGEST_NAME;
  }

  /** Read a string; the cursor stands on its quote. */
  boolean string() {
    return anyString() && length <= LONGEST_STRING;
  }

  private boolean anyString() {
    int i = at + 1;
    boolean ascii = true;
    while (i < end) {
      byte c = bytes[i];
      if (c == '"') {
        source = bytes;
        from = at + 1;
        length = i - from;
        at = i + 1;
        return ascii || Utf8.valid(source, from, from + length);
      }
      if (c == '\\') {
        return escapedString(i);
      }
      if (c < 0) {
        ascii = false;
      } else if (c < ' ') {
        return false;
      }
      i++;
    }
    return false;
  }

  /** As {@link #anyString}, of a string whose first backslash is at {@code i}. */
  private boolean escapedString(int i) {
    int size = i - at - 1;
    room(size);
    System.arraycopy(bytes, at + 1, unescaped, 0, size);
    while (i < end) {
      byte c = bytes[i++];
      if (c == '"') {
        source = unescaped;
        from = 0;
        length = size;
        at = i;
        return Utf8.valid(source, 0, size);
      }
      if (c >= 0 && c < ' ') {
        return false;
      }
      room(size + 4);
      if (c != '\\') {
        unescaped[size++] = c;
        continue;
      }
      if (i >= end) {
        return false;
      }
      switch (bytes[i++]) {
        case '"' -> unescaped[size++] = '"';
        case '\\' -> unescaped[size++] = '\\';
        case '/' -> unescaped[size++] = '/';
        case 'b' -> unescaped[size++] = '\b';
        case 'f' -> unescaped[size++] = '\f';
        case 'n' -> unescaped[size++] = '\n';
        case 'r' -> unescaped[size++] = '\r';
        case 't' -> unescaped[size++] = '\t';
        case 'u' -> {
          int unit = hex(i);
          i += 4;
          if (unit < 0 || Character.isLowSurrogate((char) unit)) {
            return false;
          }
          int point = unit;
          if (Character.isHighSurrogate((char) unit)) {
            int low = i + 1 < end && bytes[i] == '\\' && bytes[i + 1] == 'u' ? hex(i + 2) : -1;
            if (low < 0 || !Character.isLowSurrogate((char) low)) {
              return false;
            }
            i += 6;
            point = Character.toCodePoint((char) unit, (char) low);
          }
          size = Utf8.put(point, unescaped, size);
        }
        default -> {
          return false;
        }
      }
    }
    return false;
  }

  private void room(int size) {
    if (size > unescaped.length) {
      unescaped = java.util.Arrays.copyOf(unescaped, Math.max(size, 2 * unescaped.length));
    }
  }

  private int hex(int i) {
    if (i + 4 > end) {
      return -1;
    }
    int unit = 0;
    for (int k = i; k < i + 4; k++) {
      byte c = bytes[k];
      int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      if (digit < 0) {
        return -1;
      }
      unit = unit << 4 | digit;
    }
    return unit;
  }

  /** Read a number; the cursor stands on its first character. */
  boolean number() {
    if (!number(bytes, at, end)) {
      return false;
    }
    at += length;
    return true;
  }

  /** Read the number that begins at {@code start} of {@code text}. */
  boolean number(byte[] text, int start, int stop) {
    int i = start;
    digits = 0;
    digitCount = 0;
    fractionDigits = 0;
    hasFraction = false;
    hasExponent = false;
    negative = i < stop && text[i] == '-';
    if (negative) {
      i++;
    }
    int first = i;
    while (i < stop && digit(text[i])) {
      add(text[i++]);
    }
    if (i == first || (text[first] == '0' && i > first + 1)) {
      return false;
    }
    if (i < stop && text[i] == '.') {
      hasFraction = true;
      first = ++i;
      while (i < stop && digit(text[i])) {
        add(text[i++]);
      }
      fractionDigits = i - first;
      if (fractionDigits == 0) {
        return false;
      }
    }
    if (i < stop && (text[i] == 'e' || text[i] == 'E')) {
      hasExponent = true;
      i++;
      if (i < stop && (text[i] == '+' || text[i] == '-')) {
        i++;
      }
      first = i;
      while (i < stop && digit(text[i])) {
        i++;
      }
      if (i == first || i - first > LONGEST_EXPONENT) {
        return false;
      }
    }
    source = text;
    from = start;
    length = i - start;
    return length <= LONGEST_NUMBER;
  }

  private static boolean digit(byte c) {
    return c >= '0' && c <= '9';
  }

  private void add(byte digit) {
    digits = digits * 10 + (digit - '0');
    if (digitCount > 0 || digit != '0') {
      digitCount++;
    }
  }

  /** What was read last, as text. */
  String text() {
    return new String(source, from, length, StandardCharsets.US_ASCII);
  }

  /** Pass a value of any type, which has to be plain JSON. */
  boolean skip(int depth) {
    switch (peek()) {
      case '"':
        return string();
      case '{':
        at++;
        if (take('}')) {
          return true;
        }
        do {
          if (depth > DEEPEST || !name() || !take(':') || !skip(depth + 1)) {
            return false;
          }
        } while (take(','));
        return take('}');
      case '[':
        at++;
        if (take(']')) {
          return true;
        }
        do {
          if (depth > DEEPEST || !skip(depth + 1)) {
            return false;
          }
        } while (take(','));
        return take(']');
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }
}
