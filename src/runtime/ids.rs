//! Ids of sandboxes and containers: 64 hex digits, and prefixes of them.

use super::refusal::refusal;
use crate::core::time::Rng;
use crate::model::runtime::{Code, Refusal};

/// A new id.
pub fn new_id(rng: &mut Rng) -> Box<str> {
    let [a, b, c, d] = std::array::from_fn(|_| rng.bits());
    format!("{a:016x}{b:016x}{c:016x}{d:016x}").into()
}

/// The one of `ids` that a client's text stands for: itself, or the only one that begins so.
/// `None`: there is none.
pub fn find<'a>(
    text: &str,
    ids: impl Iterator<Item = &'a str>,
) -> Result<Option<&'a str>, Refusal> {
    if text.is_empty() {
        return Err(refusal(Code::InvalidArgument, "got an empty id, expected one or its prefix"));
    }
    let (mut found, mut is_ambiguous) = (None, false);
    for id in ids.filter(|id| id.starts_with(text)) {
        if id.len() == text.len() {
            return Ok(Some(id));
        }
        is_ambiguous |= found.replace(id).is_some();
    }
    if is_ambiguous {
        let message = format!("got the id {text:?}, which is ambiguous: expected more digits");
        return Err(refusal(Code::InvalidArgument, message));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_by_itself_and_by_a_prefix_that_is_unique() {
        let ids = ["abc1", "abc2", "abc", "d"];
        for (text, want) in [
            ("abc1", Ok(Some("abc1"))),
            ("abc", Ok(Some("abc"))),
            ("d", Ok(Some("d"))),
            ("abc3", Ok(None)),
            ("abc12", Ok(None)),
            ("ab", Err(())),
            ("", Err(())),
        ] {
            let got = find(text, ids.into_iter()).map_err(|refusal| {
                assert_eq!(refusal.code, Code::InvalidArgument, "{text}");
            });
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn an_id_has_64_hex_digits_and_follows_from_the_seed() {
        let (mut one, mut two) = (Rng::new(7), Rng::new(7));
        let id = new_id(&mut one);
        assert!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert_eq!(id, new_id(&mut two));
        assert_ne!(id, new_id(&mut one));
    }
}
