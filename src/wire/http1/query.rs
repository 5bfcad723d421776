//! Percent-encoded texts of paths and queries (RFC 3986; `+` in a query is a space).

/// The decoded names and values of a query, in their order.
pub fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (unescaped(name), unescaped(value))
    })
}

/// Decodes a text of a query; invalid escapes stay.
pub fn unescaped(text: &str) -> String {
    decoded(text, b' ')
}

/// Decodes an element of a path; invalid escapes stay.
pub fn unescaped_path(text: &str) -> String {
    decoded(text, b'+')
}

fn decoded(text: &str, plus: u8) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                rest = &after[2..];
            }
            (b'+', ..) => {
                bytes.push(plus);
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_taken_apart_and_decoded() {
        let got: Vec<_> = pairs("command=sh&command=a+b%26c&tty&&x=%zz%4").collect();
        let want = [("command", "sh"), ("command", "a b&c"), ("tty", ""), ("x", "%zz%4")];
        assert_eq!(got, want.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(unescaped_path("a+b%2Fc"), "a+b/c");
    }
}
