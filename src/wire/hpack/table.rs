//! The static table (RFC 7541 appendix A) and the dynamic table (section 4), one index space.

use std::collections::VecDeque;

use super::{Error, Field};

/// The size of an entry beyond its name and value (RFC 7541 section 4.1).
pub(super) const ENTRY_OVERHEAD_BYTES: usize = 32;

/// Static entries first, then the dynamic ones, the newest first.
#[derive(Debug)]
pub(super) struct Table {
    entries: VecDeque<Field>,
    bytes: usize,
    /// The encoder's choice; at most `announced_bytes`.
    bytes_max: usize,
    /// Our announced limit.
    announced_bytes: usize,
}

impl Table {
    pub(super) fn new(announced_bytes: usize) -> Table {
        let bytes_max = announced_bytes;
        Table { entries: VecDeque::new(), bytes: 0, bytes_max, announced_bytes }
    }

    /// Name and value at an index, which counts from one.
    pub(super) fn entry(&self, index: u32) -> Result<(&[u8], &[u8]), Error> {
        let max = STATIC.len() + self.entries.len();
        let unknown = Error::IndexUnknown { got: index, max };
        let position = (index as usize).checked_sub(1).ok_or(unknown)?;
        if let Some((name, value)) = STATIC.get(position) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let field = self.entries.get(position - STATIC.len()).ok_or(unknown)?;
        Ok((&field.name, &field.value))
    }

    /// A dynamic table size update (RFC 7541 section 6.3).
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes > self.announced_bytes {
            let max_bytes = self.announced_bytes;
            return Err(Error::TableSizeTooLarge { got_bytes: bytes, max_bytes });
        }
        self.bytes_max = bytes;
        self.evict(bytes);
        Ok(())
    }

    /// Adds the newest entry; one that is larger than the table empties it (RFC 7541 section 4.4).
    pub(super) fn insert(&mut self, field: Field) {
        let bytes = entry_bytes(&field);
        let Some(room) = self.bytes_max.checked_sub(bytes) else {
            self.evict(0);
            return;
        };
        self.evict(room);
        self.bytes += bytes;
        self.entries.push_front(field);
    }

    /// Drops the oldest entries until the table holds at most `bytes`.
    fn evict(&mut self, bytes: usize) {
        while self.bytes > bytes {
            let oldest = self.entries.pop_back().expect("a table with bytes has an entry");
            self.bytes -= entry_bytes(&oldest);
        }
    }
}

fn entry_bytes(field: &Field) -> usize {
    field.name.len() + field.value.len() + ENTRY_OVERHEAD_BYTES
}

const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];
