package lakelock.reader;

import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneId;

/** Dates and times in their usual spelling, such as 2026-11-25 and 2026-11-25T10:30:00.123456Z. No other is plain. */
final class Times {
  static final int DATE = 10;
  static final int NONE = Integer.MIN_VALUE;
  static final long NOT_PLAIN = Long.MIN_VALUE;
  private static final int[] DAYS = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  private static final long SECOND = 1_000_000;

  private Times() {}

  /** The days since 1970-01-01 of the date that begins at {@code at}. */
  static int day(byte[] text, int at) {
    int year = two(text, at) * 100 + two(text, at + 2);
    int month = two(text, at + 5);
    int day = two(text, at + 8);
    if (year < 1 || month < 1 || month > 12 || day < 1 || text[at + 4] != '-' || text[at + 7] != '-') {
      return NONE;
    }
    boolean leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (day > DAYS[month - 1] + (leap && month == 2 ? 1 : 0)) {
      return NONE;
    }
    // Years from March on, so that the leap day is the last; 400 years have 146,097 days.
    int years = month > 2 ? year : year - 1;
    int ofYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return years * 365 + years / 4 - years / 100 + years / 400 + ofYear - 719_468;
  }

  /** The microseconds since 1970-01-01 UTC; {@code zone} of a time that names none; null: none may be named. */
  static long micros(byte[] text, int at, int length, ZoneId zone) {
    int end = at + length;
    if (length < 19 || (text[at + 10] != 'T' && text[at + 10] != ' ') || text[at + 13] != ':' || text[at + 16] != ':') {
      return NOT_PLAIN;
    }
    int day = day(text, at);
    int hour = two(text, at + 11);
    int minute = two(text, at + 14);
    int second = two(text, at + 17);
    if (day == NONE || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) {
      return NOT_PLAIN;
    }
    int i = at + 19;
    long fraction = 0;
    if (i < end && text[i] == '.') {
      long unit = SECOND;
      for (i++; i < end && text[i] >= '0' && text[i] <= '9'; i++) {
        unit /= 10;
        fraction += (text[i] - '0') * unit;
        if (unit == 0) {
          return NOT_PLAIN;
        }
      }
      if (unit == SECOND) {
        return NOT_PLAIN;
      }
    }
    long local = ((day * 24L + hour) * 60 + minute) * 60 + second;
    if (i == end) {
      return (local - (zone == null ? 0 : offset(zone, day, hour, minute, second))) * SECOND + fraction;
    }
    if (zone == null) {
      return NOT_PLAIN;
    }
    if (text[i] == 'Z' && i + 1 == end) {
      return local * SECOND + fraction;
    }
    if ((text[i] != '+' && text[i] != '-') || i + 6 != end || text[i + 3] != ':') {
      return NOT_PLAIN;
    }
    int hours = two(text, i + 1);
    int minutes = two(text, i + 4);
    if (hours < 0 || hours > 17 || minutes < 0 || minutes > 59) {
      return NOT_PLAIN;
    }
    int seconds = (hours * 60 + minutes) * 60;
    return (local - (text[i] == '+' ? seconds : -seconds)) * SECOND + fraction;
  }

  /** The seconds by which a zone is ahead of UTC at a local time. */
  private static int offset(ZoneId zone, int day, int hour, int minute, int second) {
    if (zone.getRules().isFixedOffset()) {
      return zone.getRules().getOffset(java.time.Instant.EPOCH).getTotalSeconds();
    }
    LocalDateTime local = LocalDateTime.of(LocalDate.ofEpochDay(day), LocalTime.of(hour, minute, second));
    // Of a time that is skipped or comes twice, as Spark takes it.
    return (int) (local.toEpochSecond(java.time.ZoneOffset.UTC) - local.atZone(zone).toEpochSecond());
  }

  /** The number of two digits, or a low negative number. */
  private static int two(byte[] text, int at) {
    int tens = text[at] - '0';
    int ones = text[at + 1] - '0';
    return tens < 0 || tens > 9 || ones < 0 || ones > 9 ? -100_000 : tens * 10 + ones;
  }
}
