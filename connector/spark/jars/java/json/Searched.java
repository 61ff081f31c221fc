package lakelock.json;

/** A text in which a pattern is looked for, and not for ever: with some patterns the time grows exponentially. */
final class Searched implements CharSequence {
  /** Looks at characters, beside a thousand for each one of the text: a second or two. */
  private static final long LEAST = 300_000_000L;
  private static final long FOR_EACH = 1_000L;

  private final String text;
  private long left;

  Searched(String text) {
    this.text = text;
    left = LEAST + FOR_EACH * text.length();
  }

  /** Thrown inside of a search. */
  static final class TooLong extends RuntimeException {
    private static final long serialVersionUID = 1L;

    TooLong() {
      super(null, null, false, false);
    }
  }

  @Override
  public char charAt(int at) {
    if (--left < 0) {
      throw new TooLong();
    }
    return text.charAt(at);
  }

  @Override
  public int length() {
    return text.length();
  }

  @Override
  public CharSequence subSequence(int start, int end) {
    return text.subSequence(start, end);
  }

  @Override
  public String toString() {
    return text;
  }
}
