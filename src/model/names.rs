//! Valid names: of Kubernetes objects (RFC 1123), of machines and of sysctls.

/// Whether this is a label, as required for namespaces and containers.
pub fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_dns_part(name)
}

/// Whether this is a subdomain, as required for pods, nodes and most other objects.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_part)
}

/// `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
pub fn is_dns_part(part: &str) -> bool {
    let inner = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'z' | b'-');
    !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
}

/// Whether this may stand to the left of the path of an NFS export.
pub fn is_machine(server: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b':' | b'-' | b'[' | b']');
    !server.is_empty() && !server.starts_with('-') && server.bytes().all(plain)
}

/// A sysctl's name with `.` between its parts. They may be separated by `/` as well: the first
/// separator decides, and the other character is part of a name (`net/ipv4/conf/eth0.1/mtu`).
pub fn dotted_sysctl(name: &str) -> String {
    if name.find(['.', '/']).is_none_or(|at| name[at..].starts_with('.')) {
        return name.to_owned();
    }
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    name.chars().map(swap).collect()
}

/// The beginning of a text, enough to recognise it.
pub fn cut(text: &str) -> &str {
    text.char_indices().nth(64).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        for name in ["a", "0", "a-b", "a--b"] {
            assert!(is_label(name) && is_subdomain(name), "{name}");
        }
        assert!(is_subdomain("a.b-c.0") && !is_label("a.b"));
        for name in ["", "-a", "a-", "A", "a_b", "a/b", "..", "a..b", ".a", "a.", "ä", "a b"] {
            assert!(!is_label(name) && !is_subdomain(name), "{name}");
        }
        assert!(is_label(&"a".repeat(63)) && !is_label(&"a".repeat(64)));
        assert!(is_subdomain(&"a".repeat(253)) && !is_subdomain(&"a".repeat(254)));
    }
}
