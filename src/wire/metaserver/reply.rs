//! Answers to clients, in pieces: an object's bytes are copied only when they are written, so that
//! a hundred clients that read the same list share it.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{people, table};
use crate::model::application::Item;
use crate::model::metaserver::{Beginning, Failure, Form, Reply, Served, Source, WatchEvent};
use crate::wire::http1::LAST_HEADERS;
use crate::wire::http1::call::reason;

/// A part of an answer.
#[derive(Clone, Debug)]
pub enum Piece {
    /// As it is sent.
    Bytes(Vec<u8>),
    /// A chunk for each object.
    Items(Place, Form, std::vec::IntoIter<Arc<Item>>),
    /// The last one.
    End,
}

/// What stands around an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The first one of a list.
    First,
    /// Another one of it.
    Next,
    Added,
    Modified,
    Deleted,
}

/// The pieces of a reply.
pub fn pieces(reply: Reply) -> Vec<Piece> {
    match reply {
        Reply::Object { item, form, source } => object(&item, form, source),
        Reply::List { served, items, version, form, source } => {
            list(&served, items, version, form, source)
        }
        Reply::Remote(code, body) => whole(code, "application/json", "", &body),
        Reply::Done => whole(200, "text/plain", "", ""),
        Reply::Messages(messages) => {
            whole(200, "application/json", "", &people::messages(&messages))
        }
        // It was handed over: its client has an answer of its own.
        #[cfg(feature = "streams")]
        Reply::Stream(_) => Vec::new(),
        Reply::Failure(failure) => refusal(&failure),
        Reply::Watching(beginning) => watching(beginning),
        Reply::Event(event) => vec![event_piece(event)],
        Reply::End => vec![Piece::Bytes(LAST_CHUNK.to_vec()), Piece::End],
    }
}

/// An answer with a body that is known.
pub fn whole(code: u16, kind: &str, more: &str, body: &str) -> Vec<Piece> {
    let (reason, length) = (reason(code), body.len());
    let head = format!(
        "HTTP/1.1 {code} {reason}\r\nContent-Type: {kind}\r\n{more}Content-Length: {length}\r\n\
         {LAST_HEADERS}\r\n{body}"
    );
    vec![Piece::Bytes(head.into_bytes()), Piece::End]
}

/// meta/v1 `Status` of a failure.
pub fn refusal(failure: &Failure) -> Vec<Piece> {
    let Failure { code, reason, message } = failure;
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "code": code,
    });
    if !reason.is_empty() {
        status["reason"] = (*reason).into();
    }
    // With this header client-go repeats a request silently, ten times. A cloud may be away for
    // days: its users are to be told at once.
    let more = if *code == 429 { "Retry-After: 1\r\n" } else { "" };
    whole(*code, "application/json", more, &status.to_string())
}

/// RFC 9111's form of a warning, which kubectl prints.
const FROM_STORE: &str = "Warning: 299 - \"served from the node's store\"\r\n";

fn warning(source: Source) -> &'static str {
    match source {
        Source::Cloud => "",
        Source::Store => FROM_STORE,
    }
}

fn chunked_head(more: &str) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{more}Transfer-Encoding: \
         chunked\r\n{LAST_HEADERS}\r\n"
    );
    head.into_bytes()
}

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn chunk(text: &str, to: &mut Vec<u8>) {
    let mut size = String::new();
    write!(size, "{:x}\r\n", text.len()).expect("memory takes what is written");
    to.extend_from_slice(size.as_bytes());
    to.extend_from_slice(text.as_bytes());
    to.extend_from_slice(b"\r\n");
}

fn object(item: &Arc<Item>, form: Form, source: Source) -> Vec<Piece> {
    match form {
        Form::Whole => {
            // Not through `whole`: the text may be a megabyte.
            let (length, more) = (item.text.len() + 1, warning(source));
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{more}Content-Length: \
                 {length}\r\n{LAST_HEADERS}\r\n"
            );
            let mut bytes = head.into_bytes();
            bytes.extend_from_slice(item.text.as_bytes());
            bytes.push(b'\n');
            vec![Piece::Bytes(bytes), Piece::End]
        }
        Form::Table => rows(vec![item.clone()], item.version, source),
    }
}

fn rows(items: Vec<Arc<Item>>, version: u64, source: Source) -> Vec<Piece> {
    within(&table::head(version), items, Form::Table, table::TAIL, source)
}

fn list(
    served: &Served,
    items: Vec<Arc<Item>>,
    version: u64,
    form: Form,
    source: Source,
) -> Vec<Piece> {
    if form == Form::Table {
        return rows(items, version, source);
    }
    let (kind, api_version) = (&served.kind, served.gvr.api_version());
    let head = format!(
        "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":\
         {{\"resourceVersion\":\"{version}\"}},\"items\":["
    );
    within(&head, items, form, "]}\n", source)
}

fn within(head: &str, items: Vec<Arc<Item>>, form: Form, tail: &str, source: Source) -> Vec<Piece> {
    let mut begin = chunked_head(warning(source));
    chunk(head, &mut begin);
    let mut end = Vec::new();
    chunk(tail, &mut end);
    end.extend_from_slice(LAST_CHUNK);
    let items = Piece::Items(Place::First, form, items.into_iter());
    vec![Piece::Bytes(begin), items, Piece::Bytes(end), Piece::End]
}

fn watching(beginning: Beginning) -> Vec<Piece> {
    let Beginning { form, gone, items, bookmark } = beginning;
    let mut pieces = vec![
        Piece::Bytes(chunked_head("")),
        Piece::Items(Place::Deleted, form, gone.into_iter()),
        Piece::Items(Place::Added, form, items.into_iter()),
    ];
    let bookmark = bookmark.map(|(served, version)| WatchEvent::Bookmark(served, version, true));
    pieces.extend(bookmark.map(event_piece));
    pieces
}

fn event_piece(event: WatchEvent) -> Piece {
    let (place, form, item) = match event {
        WatchEvent::Added(form, item) => (Place::Added, form, item),
        WatchEvent::Modified(form, item) => (Place::Modified, form, item),
        WatchEvent::Deleted(form, item) => (Place::Deleted, form, item),
        WatchEvent::Bookmark(served, version, is_initial) => {
            let text = format!("{}\n", bookmark(&served, version, is_initial));
            let mut bytes = Vec::new();
            chunk(&text, &mut bytes);
            return Piece::Bytes(bytes);
        }
    };
    Piece::Items(place, form, vec![item].into_iter())
}

fn bookmark(served: &Served, version: u64, is_initial: bool) -> Value {
    let mut metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
    if is_initial {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    json!({"type": "BOOKMARK", "object": {
        "kind": served.kind, "apiVersion": served.gvr.api_version(), "metadata": metadata,
    }})
}

impl Piece {
    /// How many objects or other parts it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(_) | Self::End => 1,
            Self::Items(_, _, items) => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes what is next in it. Returns whether there is more. `now_s`: seconds since 1970;
    /// `None`: not known.
    pub fn write(&mut self, now_s: Option<i64>, to: &mut Vec<u8>) -> bool {
        match self {
            Self::Bytes(bytes) => {
                to.append(bytes);
                false
            }
            Self::Items(place, form, items) => {
                if let Some(next) = items.next() {
                    item(*place, *form, &next, now_s, to);
                }
                if *place == Place::First {
                    *place = Place::Next;
                }
                items.len() > 0
            }
            Self::End => false,
        }
    }
}

/// Writes the chunk of an object.
fn item(place: Place, form: Form, item: &Item, now_s: Option<i64>, to: &mut Vec<u8>) {
    let event = match place {
        Place::First | Place::Next => None,
        Place::Added => Some("ADDED"),
        Place::Modified => Some("MODIFIED"),
        Place::Deleted => Some("DELETED"),
    };
    let table;
    let text = match form {
        Form::Whole => &*item.text,
        Form::Table => {
            table = table::row(item, now_s);
            &*table
        }
    };
    let text = match (event, form) {
        (None, _) if place == Place::First => return chunk(text, to),
        (None, _) => format!(",{text}"),
        (Some(event), Form::Whole) => {
            format!("{{\"type\":\"{event}\",\"object\":{text}}}\n")
        }
        (Some(event), Form::Table) => {
            let (head, tail) = (table::head(item.version), table::TAIL);
            format!("{{\"type\":\"{event}\",\"object\":{head}{text}{tail}}}\n")
        }
    };
    chunk(&text, to);
}
