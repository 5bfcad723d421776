//! The token in a file that opens a port on loopback to who shows it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::limits::STREAM_TOKEN_BYTES_MAX;
use crate::model::stream::{Refusal, RefusalKind};

/// Whether this is the token in the file. It is read at each request, so that a new one is valid at
/// once.
pub(super) fn is_valid(path: &Path, bearer: &str) -> bool {
    read(path).is_some_and(|token| is_same(token.as_bytes(), bearer.as_bytes()))
}

/// The answer to who shows none, or another.
pub(super) fn refusal(path: &Path) -> Refusal {
    let path = path.display();
    let text =
        format!("got no valid token, expected the one in {path}, or a request to the unix socket");
    Refusal::new(RefusalKind::Unauthorized, text)
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(STREAM_TOKEN_BYTES_MAX).read_to_string(&mut text).ok()?;
    let token = text.trim();
    (token.len() >= TOKEN_BYTES_MIN).then(|| token.to_owned())
}

/// A shorter one could be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Compares without telling by its duration how much is the same.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_of_the_file_is_valid() {
        let path = std::env::temp_dir().join(format!("edged-token-{}", std::process::id()));
        assert!(!is_valid(&path, "0123456789abcdef"), "there is no file");
        std::fs::write(&path, "0123456789abcdef\n").expect("written");
        assert!(is_valid(&path, "0123456789abcdef"));
        for wrong in ["0123456789abcdeX", "0123456789abcde", "", "0123456789abcdef0"] {
            assert!(!is_valid(&path, wrong), "{wrong:?}");
        }
        std::fs::write(&path, "short").expect("written");
        assert!(!is_valid(&path, "short"), "it can be guessed");
        std::fs::write(&path, "").expect("written");
        assert!(!is_valid(&path, ""), "an empty file lets nobody in");
        let long = "x".repeat(STREAM_TOKEN_BYTES_MAX as usize + 9);
        std::fs::write(&path, &long).expect("written");
        assert!(!is_valid(&path, &long));
        std::fs::remove_file(&path).expect("removed");
    }
}
