//! Valid names of Kubernetes objects (RFC 1123).

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
