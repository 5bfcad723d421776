//! The page for a browser, of the agent and of the controller: `/` and the files that it loads. It
//! shows what other paths answer, and changes nothing.
//!
//! The page may contain nothing but these files and may ask only the server that it comes from, in
//! no frame of another page: [`HEADERS`] says so to the browser. Texts of pods are put in as text
//! by its script, never as elements. Logs, and all that the controller shows, are asked for with a
//! token that a person types, which goes into a header and never into an address.
//!
//! **If we crash here** the browser says that there is no answer, and asks again.

use crate::wire::http1::{Response, Status};

/// Whose page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Its own node.
    Agent,
    /// All nodes.
    #[cfg(feature = "controller")]
    Controller,
}

/// The file at a path; `None`: it is no part of the page.
pub(super) fn file(path: &str, shown: Shown) -> Option<Response> {
    let (content_type, text) = match path {
        "/" => ("text/html; charset=utf-8", include_str!("page/page.html")),
        "/page.css" => ("text/css; charset=utf-8", include_str!("page/page.css")),
        "/page.js" => (SCRIPT, include_str!("page/page.js")),
        "/load.js" => match shown {
            Shown::Agent => (SCRIPT, include_str!("page/edged.js")),
            #[cfg(feature = "controller")]
            Shown::Controller => (SCRIPT, include_str!("page/edgecontroller.js")),
        },
        _ => return None,
    };
    Some(Response { status: Status::Ok, content_type, more: HEADERS, body: text.into() })
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Beside those of every answer, which forbid to keep it and to guess its type.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src \
                       'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                       frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PAGE_BYTES_MAX;
    use crate::wire::http1::Method;

    const PATHS: [&str; 4] = ["/", "/page.css", "/page.js", "/load.js"];

    fn texts(shown: Shown) -> Vec<String> {
        let files = PATHS.iter().map(|path| file(path, shown).expect(path).body);
        files.map(|body| String::from_utf8(body).expect("text")).collect()
    }

    fn all() -> Vec<Shown> {
        vec![
            Shown::Agent,
            #[cfg(feature = "controller")]
            Shown::Controller,
        ]
    }

    #[test]
    fn the_page_is_small() {
        for shown in all() {
            let bytes: usize = texts(shown).iter().map(String::len).sum();
            assert!(bytes <= PAGE_BYTES_MAX, "{shown:?}: {bytes} bytes");
        }
    }

    #[test]
    fn each_file_says_what_a_browser_may_do_with_it() {
        for path in PATHS {
            let answer = file(path, Shown::Agent).expect(path).bytes(Method::Get);
            let text = String::from_utf8(answer).expect("text");
            let (head, _) = text.split_once("\r\n\r\n").expect("a head");
            for line in [
                "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src \
                 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors \
                 'none'",
                "Referrer-Policy: no-referrer",
                "X-Content-Type-Options: nosniff",
                "Cache-Control: no-store",
            ] {
                assert!(head.lines().any(|it| it == line), "{path}: {line} in {head}");
            }
        }
        assert_eq!(file("/page", Shown::Agent), None);
        assert_eq!(file("/pods", Shown::Agent), None);
    }

    /// What the policy would refuse, and what would make text into elements.
    #[test]
    fn nothing_comes_from_elsewhere_and_no_text_becomes_markup() {
        for text in all().into_iter().flat_map(texts) {
            for barred in [
                "://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
                "srcdoc",
                "style=",
                "onclick=",
                "onerror=",
                "@import",
                "url(",
                "localStorage",
                "cookie",
                "?token",
                "&token",
            ] {
                assert!(!text.contains(barred), "{barred}");
            }
        }
    }
}
