//! The stop signal that an image names.

/// SIGTERM
const DEFAULT: i32 = 15;
/// The last real-time signal.
const LAST: i32 = 64;
/// The names of Linux from 1 on, as on all machines that we run on.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// The real-time signals that libc leaves to programs, and from which they are counted.
const RTMIN: i32 = 34;

/// The number of a signal by its name, with or without `SIG`, or by its number. What is none means
/// SIGTERM, as with an image that names none.
pub fn stop_signal(text: &str) -> i32 {
    number(text).filter(|number| (1..=LAST).contains(number)).unwrap_or(DEFAULT)
}

fn number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return Some(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    if let Some(offset) = name.strip_prefix("RTMIN") {
        return RTMIN.checked_add(offset_of(offset)?);
    }
    if let Some(offset) = name.strip_prefix("RTMAX") {
        return LAST.checked_add(offset_of(offset)?);
    }
    NAMES.iter().position(|known| *known == name).map(|at| at as i32 + 1)
}

/// Of `+3`, `-3` or nothing.
fn offset_of(text: &str) -> Option<i32> {
    if text.is_empty() { Some(0) } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_name_and_by_number() {
        for (text, want) in [
            ("", 15),
            ("SIGTERM", 15),
            ("TERM", 15),
            ("sigquit", 3),
            ("9", 9),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
            ("SIGSYS", 31),
            ("0", 15),
            ("65", 15),
            ("SIGNONE", 15),
            ("SIGRTMIN+2147483647", 15),
            ("-1", 15),
            ("SIG", 15),
        ] {
            assert_eq!(stop_signal(text), want, "{text}");
        }
    }
}
