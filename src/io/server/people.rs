//! Requests of people among those of the HTTP API: who may send them (edgestream.md, section 19).
//!
//! Root's unix socket may. The port is open to every user of this machine, to pods on its network,
//! and to a browser: it may only with the token in `<root>/edged.token`, if there is that file, or
//! if `modules.edged.openStreams` is true.

use std::path::Path;

use crate::io::socket::Access;
use crate::io::streams::Opening;
use crate::io::token;
use crate::model::stream::Refusal;
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
        let bearer = request.bearer.as_deref().unwrap_or_default();
        if token::is_valid(self.token, bearer) { Ok(()) } else { Err(token::refusal(self.token)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stream::RefusalKind;
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
        for wrong in ["Authorization: Bearer 0123456789abcdeX", "X: y"] {
            let got = asked(wrong, Access::Public, &door);
            assert_eq!(got, Some(RefusalKind::Unauthorized), "{wrong:?}");
        }
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
