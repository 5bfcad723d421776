//! MQTT: topic names, topic filters, and which of them match (MQTT 3.1.1, section 4.7).

use std::fmt;

#[cfg(feature = "devices")]
use crate::limits::{MQTT_TOPIC_BYTES_MAX, MQTT_TOPIC_LEVELS_MAX};

/// Why a topic name or a filter is invalid in every implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Empty,
    /// U+0000.
    Nul,
    /// `+` or `#` in the topic name of a message.
    Wildcard,
    /// `+` or `#` beside other characters of its level, or `#` before the last one.
    WildcardPlace,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "got an empty topic, expected at least one character",
            Self::Nul => "got U+0000 in a topic, expected none",
            Self::Wildcard => "got a wildcard in a topic name, expected none",
            Self::WildcardPlace => "got a wildcard within a level, or levels after #",
        })
    }
}

/// Checks the topic name of a message.
pub fn check_name(name: &str) -> Result<(), Fault> {
    check_text(name)?;
    if name.contains(['+', '#']) { Err(Fault::Wildcard) } else { Ok(()) }
}

/// Checks the filter of a subscription.
pub fn check_filter(filter: &str) -> Result<(), Fault> {
    check_text(filter)?;
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let is_last = levels.peek().is_none();
        if level.contains(['+', '#']) && level != "+" && !(level == "#" && is_last) {
            return Err(Fault::WildcardPlace);
        }
    }
    Ok(())
}

fn check_text(text: &str) -> Result<(), Fault> {
    match text {
        "" => Err(Fault::Empty),
        text if text.contains('\0') => Err(Fault::Nul),
        _ => Ok(()),
    }
}

/// Whether it is within our own limits of length and depth.
#[cfg(feature = "devices")]
pub fn fits(topic: &str) -> bool {
    topic.len() <= MQTT_TOPIC_BYTES_MAX && topic.split('/').count() <= MQTT_TOPIC_LEVELS_MAX
}

/// Whether a valid filter matches a valid name. A wildcard at the beginning matches no name that
/// begins with `$` (section 4.7.2).
pub fn matches(filter: &str, name: &str) -> bool {
    if name.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filters, mut names) = (filter.split('/'), name.split('/'));
    loop {
        match (filters.next(), names.next()) {
            // `a/#` matches `a` as well.
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(filter), Some(name)) if filter == name => {}
            (Some(_), Some(_) | None) | (None, Some(_)) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_the_standard_says() {
        for (filter, name, expected) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
            ("sport/#", "sport", true),
            ("sport/#", "sports", false),
            ("#", "sport/tennis", true),
            ("sport/tennis/+", "sport/tennis/player1", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/uptime", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/uptime", true),
            ("$hw/#", "$hw/events/upload/a", true),
            ("$hw/events/device/+/+/twin/+", "$hw/events/device/default/dev1/twin/get", true),
            ("$hw/events/device/+/+/twin/+", "$hw/events/device/dev1/twin/get", false),
            ("+/user/#", "plant/user/line1", true),
            ("+/user/#", "plant/user", true),
            ("a/b", "a/b", true),
            ("a/b", "A/b", false),
        ] {
            assert_eq!(matches(filter, name), expected, "{filter} {name}");
        }
    }

    #[test]
    fn a_wildcard_stands_alone_and_the_multi_level_one_last() {
        for filter in ["#", "+", "a/#", "+/b/#", "/", "a//b", "$share/x", "ü/+"] {
            assert_eq!(check_filter(filter), Ok(()), "{filter}");
        }
        for filter in ["a#", "a/#/b", "#/a", "a+", "a/+b", "##"] {
            assert_eq!(check_filter(filter), Err(Fault::WildcardPlace), "{filter}");
        }
        assert_eq!(check_filter(""), Err(Fault::Empty));
        assert_eq!(check_filter("a\0"), Err(Fault::Nul));
        for (name, fault) in
            [("", Fault::Empty), ("a/#", Fault::Wildcard), ("+/a", Fault::Wildcard)]
        {
            assert_eq!(check_name(name), Err(fault), "{name}");
        }
        assert_eq!(check_name("/a//b/"), Ok(()));
    }

    #[test]
    #[cfg(feature = "devices")]
    fn a_topic_has_so_many_bytes_and_levels() {
        assert!(fits(&"x".repeat(MQTT_TOPIC_BYTES_MAX)));
        assert!(!fits(&"x".repeat(MQTT_TOPIC_BYTES_MAX + 1)));
        assert!(fits(&"/".repeat(MQTT_TOPIC_LEVELS_MAX - 1)));
        assert!(!fits(&"/".repeat(MQTT_TOPIC_LEVELS_MAX)));
    }
}
