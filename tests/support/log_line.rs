//! Container logs in the CRI's format.

/// A line of a container's log in the CRI's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// RFC 3339 with a fraction, as written.
    pub time: String,
    /// `stdout` or `stderr`
    pub stream: String,
    /// `F`, or `P` if the line continues.
    pub tag: String,
    /// The rest.
    pub text: String,
}

impl LogLine {
    pub(super) fn parse(line: &str) -> LogLine {
        let mut parts = line.splitn(4, ' ').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        LogLine { time: next(), stream: next(), tag: next(), text: next() }
    }

    /// The texts of one of the two streams, in their order.
    pub fn texts(lines: &[LogLine], stream: &str) -> Vec<String> {
        let of_it = lines.iter().filter(|line| line.stream == stream);
        of_it.map(|line| line.text.clone()).collect()
    }
}
