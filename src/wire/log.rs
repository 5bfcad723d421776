//! The last lines of a container's log in the runtime's format: `time stream tag text` per line;
//! the tag `P` means that the next line continues it.

#[cfg(feature = "streams")]
pub mod follow;
#[cfg(feature = "runtime")]
pub mod write;

/// The text of the last lines, at most `lines_max` lines and `bytes_max` bytes, without times and
/// tags. `bytes` may begin in the middle of a line.
pub fn tail(bytes: &[u8], lines_max: usize, bytes_max: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<(bool, &str)> = text.lines().filter_map(entry).collect();
    let ends = lines.iter().enumerate().rev().filter(|(_, (whole, _))| *whole);
    // The line before the first returned one ends here.
    let from = ends.map(|(at, _)| at + 1).filter(|&at| at < lines.len()).nth(lines_max - 1);
    let mut tail = String::new();
    for (whole, text) in &lines[from.unwrap_or(0)..] {
        tail.push_str(text);
        if *whole {
            tail.push('\n');
        }
    }
    let mut start = tail.len().saturating_sub(bytes_max);
    while !tail.is_char_boundary(start) {
        start += 1;
    }
    tail.split_off(start)
}

/// Whether the line ends here, and its text.
fn entry(line: &str) -> Option<(bool, &str)> {
    let mut parts = line.splitn(4, ' ');
    let (time, stream, tags) = (parts.next()?, parts.next()?, parts.next()?);
    let known = time.contains('T') && matches!(stream, "stdout" | "stderr");
    let whole = tags.split(':').next() != Some("P");
    known.then(|| (whole, parts.next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(tag: &str, text: &str) -> String {
        format!("2026-01-01T00:00:00.123456789Z stdout {tag} {text}\n")
    }

    #[test]
    fn the_last_lines_lose_their_times_and_broken_ones_are_joined() {
        let log = [line("F", "one"), line("P", "tw"), line("F", "o"), line("F", "")].concat();
        assert_eq!(tail(log.as_bytes(), 80, 2_048), "one\ntwo\n\n");
        assert_eq!(tail(log.as_bytes(), 2, 2_048), "two\n\n");
        assert_eq!(tail(log.as_bytes(), 1, 2_048), "\n");
        assert_eq!(tail(&log.as_bytes()[31..], 80, 2_048), "two\n\n", "cut at its beginning");
        assert_eq!(tail(log.as_bytes(), 80, 4), "wo\n\n");
        assert_eq!(tail(line("P", "open").as_bytes(), 80, 2_048), "open");
        assert_eq!(tail(b"", 80, 2_048), "");
    }

    #[test]
    fn bytes_are_counted_and_characters_stay_whole() {
        let log = line("F", "ééé");
        assert_eq!(tail(log.as_bytes(), 80, 4), "é\n");
    }
}
