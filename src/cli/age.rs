//! Formats ages: kubectl's short durations.

/// Seconds since 1970 of an RFC 3339 time in UTC, as Kubernetes writes it.
pub(super) fn seconds(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let time = time.split_once('.').map_or(time, |(whole, _)| whole);
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let holds = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !holds || hour > 23 || minute > 59 || second > 60 || year > 9999 {
        return None;
    }
    // Years start on 1 March, so that the leap day is the last of a year; in eras of 400 years.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let days = era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let mut parts = text.split(between).map(|part| part.parse::<u16>().ok().map(i64::from));
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

/// `12s`, `5m3s`, `3h12m`, `2d4h`, `400d`, `2y30d`: two units at the most.
pub(super) fn short(seconds: i64) -> String {
    const YEAR_H: i64 = 24 * 365;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(hours / 24, "d", hours % 24, "h"),
        _ if hours < YEAR_H * 2 => format!("{}d", hours / 24),
        _ if hours < YEAR_H * 8 => two(hours / YEAR_H, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / YEAR_H),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::Timestamp;

    #[test]
    fn times_are_read_back_as_they_are_written() {
        for time in [0, 951_782_399, 951_782_400, 1_763_666_951, 4_102_444_800, -86_400] {
            assert_eq!(seconds(&Timestamp(time).to_string()), Some(time));
        }
        assert_eq!(seconds("2025-11-20T19:29:11.123456789Z"), Some(1_763_666_951));
        for bad in
            ["", "2025-11-20", "2025-11-20T19:29:11", "2025-13-01T00:00:00Z", "TZ", "a-b-cTd:e:fZ"]
        {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_are_as_short_as_kubectls() {
        const H: i64 = 3600;
        const D: i64 = 24 * H;
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * H - 1, "179m"),
            (3 * H, "3h"),
            (8 * H - 60, "7h59m"),
            (8 * H, "8h"),
            (48 * H - 1, "47h"),
            (2 * D, "2d"),
            (2 * D + H, "2d1h"),
            (8 * D, "8d"),
            (2 * 365 * D - 1, "729d"),
            (2 * 365 * D + D, "2y1d"),
            (8 * 365 * D, "8y"),
        ] {
            assert_eq!(short(seconds), text, "{seconds}");
        }
    }
}
