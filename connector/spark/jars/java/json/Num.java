package lakelock.json;

import java.math.BigDecimal;

/** A number of JSON. Numbers are equal if they are mathematically. */
final class Num {
  final BigDecimal value;
  /** Whether it is written with digits only, as draft 4 wants an integer. */
  final boolean digitsOnly;

  Num(BigDecimal value, boolean digitsOnly) {
    this.value = value;
    this.digitsOnly = digitsOnly;
  }

  boolean isWhole() {
    return digitsOnly || value.signum() == 0 || value.stripTrailingZeros().scale() <= 0;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Num && value.compareTo(((Num) other).value) == 0;
  }

  @Override
  public int hashCode() {
    return value.signum() == 0 ? 0 : value.stripTrailingZeros().hashCode();
  }

  @Override
  public String toString() {
    return value.toString();
  }
}
