//! PEM: DER between two lines of dashes (RFC 7468). Text around the blocks is ignored.

use crate::model::base64;

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// `CERTIFICATE`, `EC PRIVATE KEY` …
    pub label: String,
    pub der: Vec<u8>,
}

/// All blocks of a text in their order. An error names the unreadable one.
pub fn decode(text: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let number = blocks.len() + 1;
        let (label, after) = after
            .split_once(DASHES)
            .filter(|(label, _)| label.len() <= LABEL_BYTES_MAX && !label.contains('\n'))
            .ok_or_else(|| format!("PEM block {number}: the line of its beginning has no end"))?;
        let end = format!("{END}{label}{DASHES}");
        let (body, after) = after
            .split_once(&*end)
            .ok_or_else(|| format!("PEM block {number} ({label}): got no line {end:?}"))?;
        let der = base64::decode(body)
            .filter(|der| !der.is_empty())
            .ok_or_else(|| format!("PEM block {number} ({label}): expected base64"))?;
        blocks.push(Block { label: label.to_owned(), der });
        rest = after;
    }
    Ok(blocks)
}

/// One block, in lines of 64.
pub fn encode(label: &str, der: &[u8]) -> String {
    let body = base64::encode(der);
    let mut text = format!("{BEGIN}{label}{DASHES}\n");
    let mut rest = &*body;
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str(END);
    text.push_str(label);
    text.push_str(DASHES);
    text.push('\n');
    text
}

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
/// The longest known label has 22.
const LABEL_BYTES_MAX: usize = 64;
