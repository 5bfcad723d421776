//! Requests of people among those of the HTTP API: who may send them (edgestream.md, section 19).
//!
//! Root's unix socket may. The port is open to every user of this machine, to pods on its network,
//! and to a browser: it may only with the token in `<root>/edged.token`, if there is that file, or
//! if `modules.edged.openStreams` is true.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::io::socket::Access;
use crate::io::streams::Opening;
use crate::limits::STREAM_TOKEN_BYTES_MAX;
use crate::model::stream::{Refusal, RefusalKind};
use crate::wire::http1::Request;
use crate::wire::kubelet;

/// The name of the token's file below the root directory.
pub(super) const TOKEN: &str = "edged.token";

/// `None`: it is a request to the rest of the API.
pub(super) fn opening(
    request: &Request,
    rest: &[u8],
    access: Access,
    door: &Door<'_>,
) -> Option<Result<Opening, Refusal>> {
    let method = request.method.name();
    let asked = kubelet::parse(method, &request.path, &request.query)?;
    if let Err(refusal) = door.admits(request, access) {
        return Some(Err(refusal));
    }
    Some(asked.map(|asked| Opening {
        request: asked.request,
        form: asked.form,
        method: method.to_owned(),
        headers: request.upgrade.clone(),
        input: rest.to_vec(),
    }))
}

/// Who is let in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Door<'a> {
    /// `modules.edged.openStreams`
    pub(super) is_open: bool,
    /// Of the token.
    pub(super) token: &'a Path,
}

impl Door<'_> {
    fn admits(&self, request: &Request, access: Access) -> Result<(), Refusal> {
        if access == Access::Protected || self.is_open {
            return Ok(());
        }
        let is_known = request.bearer.as_deref().is_some_and(|bearer| {
            token(self.token).is_some_and(|token| is_same(token.as_bytes(), bearer.as_bytes()))
        });
        if is_known {
            return Ok(());
        }
        let path = self.token.display();
        let text = format!(
            "got no valid token, expected the one in {path}, or a request to the unix socket"
        );
        Err(Refusal::new(RefusalKind::Unauthorized, text))
    }
}

/// Read at each request, so that a new one is valid at once.
fn token(path: &Path) -> Option<String> {
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
    use crate::wire::http1;

    fn asked(bearer: &str, access: Access, door: &Door<'_>) -> Option<RefusalKind> {
        let head = format!(
            "GET /containerLogs/default/p/c HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n\r\n"
        );
        let bound = ([127, 0, 0, 1], 10_350).into();
        let request = http1::request(head.as_bytes(), bound).expect("valid").expect("whole");
        match opening(&request, b"", access, door).expect("for people") {
            Ok(_) => None,
            Err(refusal) => Some(refusal.kind),
        }
    }

    #[test]
    fn the_port_wants_a_token_and_the_socket_none() {
        let dir = std::env::temp_dir().join(format!("edged-door-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let path = dir.join(TOKEN);
        let door = Door { is_open: false, token: &path };
        let bearer = "Authorization: Bearer 0123456789abcdef";
        assert_eq!(asked(bearer, Access::Public, &door), Some(RefusalKind::Unauthorized));
        assert_eq!(asked("X: y", Access::Protected, &door), None);
        assert_eq!(asked("X: y", Access::Public, &Door { is_open: true, ..door }), None);
        std::fs::write(&path, "0123456789abcdef\n").expect("written");
        assert_eq!(asked(bearer, Access::Public, &door), None);
        for wrong in ["0123456789abcdeX", "0123456789abcde", "", "0123456789abcdef0"] {
            let bearer = format!("Authorization: Bearer {wrong}");
            let got = asked(&bearer, Access::Public, &door);
            assert_eq!(got, Some(RefusalKind::Unauthorized), "{wrong:?}");
        }
        std::fs::write(&path, "short").expect("written");
        let got = asked("Authorization: Bearer short", Access::Public, &door);
        assert_eq!(got, Some(RefusalKind::Unauthorized), "it can be guessed");
        std::fs::write(&path, "x".repeat(STREAM_TOKEN_BYTES_MAX as usize + 9)).expect("written");
        let long =
            format!("Authorization: Bearer {}", "x".repeat(STREAM_TOKEN_BYTES_MAX as usize + 9));
        assert_eq!(asked(&long, Access::Public, &door), Some(RefusalKind::Unauthorized));
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
