//! Removes the varying parts of a message, ids and times, so that repeats can be compared.
//!
//! Runtimes put the id of each new sandbox into error messages, or the time, or a duration. Plain
//! numbers stay: two exit codes are two messages.

/// The smallest number of hex digits of an id: ids that runtimes shorten have twelve.
const ID_DIGITS_MIN: usize = 12;
/// Digits between the hyphens of a UUID.
const UUID: [usize; 5] = [8, 4, 4, 4, 12];
/// The replacement of an id or a time.
const STAND_IN: char = '#';

/// The message as it is compared.
pub(super) fn comparable(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let (mut rest, mut inside_word) = (message, false);
    while let Some(first) = rest.chars().next() {
        let varies = if inside_word { 0 } else { varying(rest.as_bytes()) };
        if varies > 0 {
            text.push(STAND_IN);
            rest = &rest[varies..];
            inside_word = true;
            continue;
        }
        text.push(first);
        rest = &rest[first.len_utf8()..];
        inside_word = first.is_ascii_alphanumeric();
    }
    text
}

/// Bytes of the id or time at the beginning of the text; 0: there is none. All of them are ASCII,
/// except for the sign of microseconds.
fn varying(text: &[u8]) -> usize {
    let ends = |&bytes: &usize| !text.get(bytes).is_some_and(u8::is_ascii_alphanumeric);
    let all = [uuid(text), id(text), moment(text), clock(text), duration(text)];
    all.into_iter().flatten().filter(ends).max().unwrap_or(0)
}

fn count(text: &[u8], is: fn(&u8) -> bool) -> usize {
    text.iter().take_while(|byte| is(byte)).count()
}

fn uuid(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    for (group, digits) in UUID.into_iter().enumerate() {
        at += usize::from(group > 0 && text.get(at) == Some(&b'-'));
        if count(&text[at..], u8::is_ascii_hexdigit) != digits {
            return None;
        }
        at += digits;
    }
    Some(at)
}

fn id(text: &[u8]) -> Option<usize> {
    let digits = count(text, u8::is_ascii_hexdigit);
    let has_number = text[..digits].iter().any(u8::is_ascii_digit);
    (digits >= ID_DIGITS_MIN && has_number).then_some(digits)
}

/// `2026-11-24T10:47:30.123Z`, and in the notation of Go's log: `2026/11/24 10:47:30`.
fn moment(text: &[u8]) -> Option<usize> {
    let date = digits(text, &[4, 2, 2], b"-/")?;
    if !matches!(text.get(date), Some(b'T' | b' ')) {
        return Some(date);
    }
    let Some(clock) = clock(&text[date + 1..]) else { return Some(date) };
    let at = date + 1 + clock;
    Some(at + zone(&text[at..]))
}

/// `10:47:30.123`
fn clock(text: &[u8]) -> Option<usize> {
    let at = digits(text, &[2, 2, 2], b":")?;
    Some(at + fraction(&text[at..]))
}

/// `Z`, `+01:00`, ` +0000 UTC`
fn zone(text: &[u8]) -> usize {
    if text.first() == Some(&b'Z') {
        return 1;
    }
    let space = usize::from(text.first() == Some(&b' '));
    if !matches!(text.get(space), Some(b'+' | b'-')) {
        return 0;
    }
    let offset = count(&text[space + 1..], |byte| byte.is_ascii_digit() || *byte == b':');
    if offset < 4 { 0 } else { space + 1 + offset }
}

/// `.123`
fn fraction(text: &[u8]) -> usize {
    match text.split_first() {
        Some((b'.' | b',', rest)) => match count(rest, u8::is_ascii_digit) {
            0 => 0,
            digits => digits + 1,
        },
        _ => 0,
    }
}

/// Groups of so many digits, separated by one of these signs.
fn digits(text: &[u8], groups: &[usize], signs: &[u8]) -> Option<usize> {
    let mut at = 0;
    for (group, &length) in groups.iter().enumerate() {
        if group > 0 {
            at += text.get(at).filter(|sign| signs.contains(sign)).map(|_| 1)?;
        }
        if count(&text[at..], u8::is_ascii_digit) != length {
            return None;
        }
        at += length;
    }
    Some(at)
}

/// In Go's notation: `1m2.5s`, `340ms`, `12.5µs`. A text that ends in minutes or hours may be
/// another quantity (`500m`).
fn duration(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let whole = count(&text[at..], u8::is_ascii_digit);
        if whole == 0 {
            return None;
        }
        at += whole;
        at += fraction(&text[at..]);
        let units = ["ms", "us", "ns", "\u{b5}s", "\u{3bc}s", "s"];
        let unit = units.iter().find(|unit| text[at..].starts_with(unit.as_bytes()));
        if let Some(unit) = unit {
            return Some(at + unit.len());
        }
        if !matches!(text.get(at), Some(b'm' | b'h')) {
            return None;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_times_are_taken_out_and_all_else_stays() {
        let id = "6f0c".repeat(16);
        for (message, expected) in [
            (format!("for sandbox \"{id}\": no net"), "for sandbox \"#\": no net"),
            (
                format!("k8s.io/{id}/rootfs, container {}", &id[..12]),
                "k8s.io/#/rootfs, container #",
            ),
            (
                "/var/run/netns/cni-3f1c2b4d-0a1b-4c5d-8e9f-0123456789ab gone".to_owned(),
                "/var/run/netns/cni-# gone",
            ),
            ("time=\"2026-11-24T10:47:30Z\" level=error".to_owned(), "time=\"#\" level=error"),
            ("at 2026-11-24 10:47:30.123456789 +0000 UTC m".to_owned(), "at # UTC m"),
            ("2026/11/24 10:47:30 late".to_owned(), "# late"),
            ("since 10:47:30.5, on 2026-11-24".to_owned(), "since #, on #"),
            ("after 1m2.503s, 340ms and 12.5\u{b5}s".to_owned(), "after #, # and #"),
            ("tried 14.2s ago".to_owned(), "tried # ago"),
            // These carry information.
            ("exit code 137, cpu 500m, 64Mi".to_owned(), "exit code 137, cpu 500m, 64Mi"),
            ("port 10250 of 192.0.2.1:10250".to_owned(), "port 10250 of 192.0.2.1:10250"),
            ("web-7c9f8b6d5c: deadbeefcafe".to_owned(), "web-7c9f8b6d5c: deadbeefcafe"),
            ("x6f0c6f0c6f0c6f0c v1.2.3s4".to_owned(), "x6f0c6f0c6f0c6f0c v1.2.3s4"),
            ("\u{fc}ber 5 \u{20ac}".to_owned(), "\u{fc}ber 5 \u{20ac}"),
            (String::new(), ""),
        ] {
            assert_eq!(comparable(&message), expected, "{message}");
        }
    }
}
