//! Wall-clock time in Kubernetes' format.

use std::fmt;

use serde::{Serialize, Serializer};

/// Whole seconds since 1970 UTC, written as RFC 3339 (`metav1.Time`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Days from 1970-01-01 to a day of the Gregorian calendar: the inverse of [`civil`].
    pub fn days(year: i64, month: i64, day: i64) -> i64 {
        // In years that begin in March, so that the leap day is the last.
        let year = year - i64::from(month <= 2);
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
        era * 146_097 + day_of_era - 719_468
    }

    /// From RFC 3339 in UTC, as the API server writes it: `2026-08-06T10:00:00Z`; a fraction of a
    /// second is cut off.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let time = time.split_once('.').map_or(time, |(whole, _)| whole);
        let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
        let mut time = time.splitn(3, ':').map(|part| part.parse::<i64>().ok());
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
        let holds = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..=60).contains(&second);
        // Only after the checks: otherwise the sum may overflow.
        let days = || Self::days(year, month, day);
        holds.then(|| Self(((days() * 24 + hour) * 60 + minute) * 60 + second))
    }

    /// The same with an offset: `2026-08-06T12:00:00+02:00`.
    #[cfg(feature = "streams")]
    pub fn parse_with_offset(text: &str) -> Option<Self> {
        let offset_at = text.len().checked_sub(OFFSET_BYTES).filter(|_| !text.ends_with('Z'));
        let Some((local, offset)) = offset_at.and_then(|at| text.split_at_checked(at)) else {
            return Self::parse(text);
        };
        let sign = match offset.as_bytes()[0] {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let (hours, minutes) = offset[1..].split_once(':')?;
        let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
        let ahead = sign * (hours * 60 + minutes) * 60;
        Some(Self(Self::parse(&format!("{local}Z"))?.0 - ahead))
    }

    /// From the CRI's nanoseconds.
    pub fn from_nanos(nanos: i64) -> Self {
        Self(nanos.div_euclid(1_000_000_000))
    }
}

/// `+02:00`
#[cfg(feature = "streams")]
const OFFSET_BYTES: usize = 6;

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0.div_euclid(86_400), self.0.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Year, month and day of a count of days since 1970-01-01, in the Gregorian calendar.
///
/// Counts in eras of 400 years that begin on 1 March, so that the leap day is a year's last.
fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    let days = days + 719_468;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day = days.rem_euclid(DAYS_PER_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        for seconds in [0, 951_782_400, 1_709_208_000, 1_795_196_779, 4_102_444_799] {
            let text = Timestamp(seconds).to_string();
            assert_eq!(Timestamp::parse(&text), Some(Timestamp(seconds)), "{text}");
        }
        let fraction = Timestamp::parse("2026-11-20T17:46:19.347246Z");
        assert_eq!(fraction, Timestamp::parse("2026-11-20T17:46:19Z"));
        for bad in [
            "",
            "Z",
            "2026-11-20",
            "2026-13-20T17:46:19Z",
            "2026-11-20T24:00:00Z",
            "2026-11-20T17:46Z",
            "2026-11-20T17:46:19",
            "x-11-20T17:46:19Z",
            "99999999999999999-11-20T17:46:19Z",
            "2026-9223372036854775807-20T17:46:19Z",
            "2026-11-9223372036854775807T17:46:19Z",
            "2026-11-20T9223372036854775807:46:19Z",
        ] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn timestamps_are_written_as_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_763_666_951, "2025-11-20T19:29:11Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp(seconds).to_string(), text);
        }
    }
}
