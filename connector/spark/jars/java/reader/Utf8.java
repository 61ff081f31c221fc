package lakelock.reader;

/** UTF-8, by the table of well-formed byte sequences in the Unicode standard (table 3-7). */
final class Utf8 {
  private Utf8() {}

  /** Whether these bytes are well-formed. */
  static boolean valid(byte[] bytes, int from, int end) {
    int i = from;
    while (i < end) {
      int c = bytes[i++];
      if (c >= 0) {
        continue;
      }
      c &= 0xFF;
      int more = c >= 0xC2 && c <= 0xDF ? 1 : c >= 0xE0 && c <= 0xEF ? 2 : c >= 0xF0 && c <= 0xF4 ? 3 : 0;
      if (more == 0 || i + more > end) {
        return false;
      }
      int low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
      int high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
      int second = bytes[i++] & 0xFF;
      if (second < low || second > high) {
        return false;
      }
      for (; more > 1; more--) {
        if ((bytes[i++] & 0xC0) != 0x80) {
          return false;
        }
      }
    }
    return true;
  }

  /** Write a character at {@code at}. Returns the place after it. */
  static int put(int point, byte[] bytes, int at) {
    if (point < 0x80) {
      bytes[at++] = (byte) point;
    } else if (point < 0x800) {
      bytes[at++] = (byte) (0xC0 | point >> 6);
      bytes[at++] = (byte) (0x80 | point & 0x3F);
    } else if (point < 0x10000) {
      bytes[at++] = (byte) (0xE0 | point >> 12);
      bytes[at++] = (byte) (0x80 | point >> 6 & 0x3F);
      bytes[at++] = (byte) (0x80 | point & 0x3F);
    } else {
      bytes[at++] = (byte) (0xF0 | point >> 18);
      bytes[at++] = (byte) (0x80 | point >> 12 & 0x3F);
      bytes[at++] = (byte) (0x80 | point >> 6 & 0x3F);
      bytes[at++] = (byte) (0x80 | point & 0x3F);
    }
    return at;
  }
}
