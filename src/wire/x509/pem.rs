//! PEM: DER between two lines of dashes (RFC 7468). Text around the blocks is ignored.

use std::fmt;

use crate::model::base64;

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// `CERTIFICATE`, `EC PRIVATE KEY` …
    pub label: String,
    pub der: Vec<u8>,
}

/// Why a block cannot be read; the number is its place among the blocks, from 1 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The line of its beginning has no end.
    Begin(usize),
    /// The line of its end is missing; its label.
    End(usize, String),
    /// There is no base64 in it; its label.
    Body(usize, String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin(number) => {
                write!(f, "PEM block {number}: the line of its beginning has no end")
            }
            Self::End(number, label) => {
                let end = format!("{END}{label}{DASHES}");
                write!(f, "PEM block {number} ({label}): got no line {end:?}")
            }
            Self::Body(number, label) => {
                write!(f, "PEM block {number} ({label}): expected base64")
            }
        }
    }
}

/// All blocks of a text in their order.
pub fn decode(text: &str) -> Result<Vec<Block>, Fault> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once(BEGIN) {
        let number = blocks.len() + 1;
        let (label, after) = after
            .split_once(DASHES)
            .filter(|(label, _)| label.len() <= LABEL_BYTES_MAX && !label.contains('\n'))
            .ok_or(Fault::Begin(number))?;
        let end = format!("{END}{label}{DASHES}");
        let (body, after) =
            after.split_once(&*end).ok_or_else(|| Fault::End(number, label.to_owned()))?;
        let der = base64::decode(body)
            .filter(|der| !der.is_empty())
            .ok_or_else(|| Fault::Body(number, label.to_owned()))?;
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
