//! The host's `resolv.conf`, as resolvers read it (resolv.conf(5), spec section 3.2).

use crate::model::cri::Dns;

/// Unknown lines are skipped. The last `search` line counts; options are merged by name, the last
/// value counts.
pub fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") => dns.servers.extend(words.next().map(str::to_owned)),
            Some("search") => {
                let paths = words.map(|path| path.strip_suffix('.').unwrap_or(path));
                dns.searches = paths.filter(|path| !path.is_empty()).map(str::to_owned).collect();
            }
            Some("options") => {
                for option in words {
                    let name = |option: &str| option.split(':').next().map(str::to_owned);
                    dns.options.retain(|old| name(old) != name(option));
                    dns.options.push(option.to_owned());
                }
            }
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_resolvers_read_is_read() {
        let dns = parse(
            "# a comment\nnameserver 192.0.2.1\nnameserver fd00::1 # the second\nsearch old\n\
             domain ignored\nsearch a.b. c .\noptions ndots:1 rotate\noptions ndots:3\nnonsense\n",
        );
        assert_eq!(dns.servers, ["192.0.2.1", "fd00::1"]);
        assert_eq!(dns.searches, ["a.b", "c"]);
        assert_eq!(dns.options, ["rotate", "ndots:3"]);
        assert_eq!(parse(""), Dns::default());
    }
}
