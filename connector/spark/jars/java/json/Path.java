package lakelock.json;

/** Where a part of a value is. Null is the whole value. {@code step}: the name of a field, or the index of an item. */
record Path(Path above, Object step) {
  private static final int LONGEST = 300;

  @Override
  public String toString() {
    StringBuilder text = new StringBuilder();
    write(text);
    return text.length() > LONGEST ? text.substring(0, LONGEST) + "..." : text.toString();
  }

  private void write(StringBuilder text) {
    if (above != null) {
      above.write(text);
    }
    if (step instanceof Integer) {
      text.append('[').append(step).append(']');
    } else {
      text.append(above == null ? "" : ".").append(step);
    }
  }
}
